// Tests the plan of a call: its merged dimensions (strided.h), and the operands that are moved, the tiles and the boxes
// (tiles.h). The expected numbers were worked out by hand. Also tests whether operands share memory (contract.h).
#include <array>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "elementwise/contract.h"
#include "elementwise/cpu/tiles.h"

namespace {

using namespace elementwise;
using cpu::Box, cpu::Computer, cpu::Moves, cpu::Rows, cpu::Tiles, cpu::Walk;
using Row = std::vector<int64_t>;

void* at(uintptr_t address) {
  return reinterpret_cast<void*>(address);
}
void* const kAligned[] = {at(64), at(128), at(192)};

bool passed = true;

void expect(const std::string& what, const std::string& got, const std::string& want) {
  if (got == want) return;
  std::fprintf(stderr, "%s\n  got   %s\n  not   %s\n", what.c_str(), got.c_str(), want.c_str());
  passed = false;
}

// Sizes, and the strides of each operand, the outermost dimension first, as in a tensor.
struct Layout {
  Row sizes;
  std::vector<Row> strides;

  Plan plan() const {
    const int64_t* pointers[kMaxOperands];
    for (size_t k = 0; k < strides.size(); k++) pointers[k] = strides[k].data();
    return make_plan(strides.size(), sizes.size(), sizes.data(), pointers);
  }
};

std::string join(const int64_t* numbers, int count, const char* between = " ") {
  std::string text;
  for (int k = 0; k < count; k++) text.append(k ? between : "").append(std::to_string(numbers[k]));
  return text;
}

// Writes each dimension, the innermost first, with its size and the strides of the operands.
std::string show(const Plan& plan) {
  std::string text;
  for (int d = 0; d < plan.dims; d++)
    text.append(d ? ", " : "") += std::to_string(plan.size[d]) + " (" + join(plan.stride[d], plan.operands) + ")";
  return text;
}

// A computer with this number of results, and operands with elements of these sizes.
Computer computer(int results, const int* bytes) {
  return {{}, [](const Rows&, const Number*) {}, results, bytes};
}

// Writes which operands are moved and how, the extent of a tile, the number of tiles in two dimensions and in all, and
// the bytes.
std::string show(const Tiles& tiles, int operands) {
  const char* const moves[] = {"nothing", "pieces", "tiles"};
  std::string text = std::string(moves[static_cast<int>(tiles.moves)]) + " ";
  for (int k = 0; k < operands; k++) text += tiles.moved[k] ? "1" : "0";
  return text + ", " + join(tiles.extent, 2, "x") + ", " + join(tiles.count, 2, "x") + " of " +
         std::to_string(tiles.total) + (tiles.apart ? " apart, " : ", ") + std::to_string(tiles.bytes);
}

std::string show(const Plan& plan, const Tiles& tiles, int64_t begin, int64_t end) {
  std::string text;
  Walk walk(plan, tiles, begin, end);
  for (Box box; walk.next(box);)
    text.append(text.empty() ? "" : ", ") += join(box.n, 2, "x") + " at " + join(box.offset, plan.operands);
  return text;
}

void plans() {
  // clang-format off
  const struct { Layout layout; const char* want; } table[] = {
      {{{}, {{}, {}}}, ""}, {{{1, 1}, {{7, 9}, {0, 3}}}, ""}, {{{3, 4, 5}, {{20, 5, 1}, {20, 5, 1}}}, "60 (1 1)"},
      {{{3, 4, 5}, {{1, 3, 12}, {1, 3, 12}}}, "60 (1 1)"}, {{{3, 1, 5}, {{5, 99, 1}, {10, 0, 2}}}, "15 (1 2)"},
      {{{3, 4}, {{4, 1}, {1, 3}}}, "4 (1 3), 3 (4 1)"}, {{{3, 4}, {{1, 3}, {4, 1}}}, "3 (1 4), 4 (3 1)"},
      {{{3, 4}, {{4, 1}, {0, 1}}}, "4 (1 1), 3 (4 0)"}, {{{3, 4}, {{4, 1}, {0, 0}}}, "12 (1 0)"},
      {{{2, 3, 4}, {{12, 4, 1}, {24, 8, 1}, {12, 4, 1}}}, "4 (1 1 1), 6 (4 8 4)"},
      {{{2, 3, 4}, {{12, 4, 1}, {12, 4, 1}, {20, 4, 1}}}, "12 (1 1 1), 2 (12 12 20)"},
      {{{2, 3, 4, 5}, {{60, 1, 15, 3}, {60, 20, 5, 1}}}, "3 (1 20), 20 (3 1), 2 (60 60)"},
      {{{2, 0}, {{1, 1}, {1, 1}}}, "0 (1 1), 2 (1 1)"},
  };
  // clang-format on
  for (const auto& [layout, want] : table) expect("plan", show(layout.plan()), want);
}

// clang-format off
const struct {
  const char* name; Layout layout; int bytes[3];
  const char* tiles; bool streams;
  struct { int64_t begin, end; const char* boxes; } walk;
} kCalls[] = {
    {"adjacent", {{10000}, {{1}, {1}, {1}}}, {2, 4, 8}, "nothing 000, 4096x1, 3x1 of 3, 140000", true,
     {1, 3, "5904x1 at 4096 4096 4096"}},
    {"one element", {{}, {{}, {}, {}}}, {4, 4, 4}, "nothing 000, 1x1, 1x1 of 1 apart, 12", false,
     {0, 1, "1x1 at 0 0 0"}},
    {"every other column", {{1000, 300}, {{300, 1}, {600, 2}, {600, 2}}}, {4, 4, 4},
     "pieces 011, 4096x1, 74x1 of 74, 3600000", true, {1, 3, "8192x1 at 4096 8192 8192"}},
    {"and of a view of it", {{1000, 300}, {{300, 1}, {601, 2}, {300, 1}}}, {4, 4, 4},
     "pieces 010, 300x13, 1x77 of 77, 3600000", true, {75, 77, "300x25 at 292500 585975 292500"}},
    {"to every other element", {{10000}, {{2}, {1}, {1}}}, {8, 8, 8}, "pieces 100, 4096x1, 3x1 of 3, 240000", false,
     {1, 1, ""}},
    {"an expanded column", {{1000, 300}, {{300, 1}, {300, 1}, {1, 0}}}, {4, 4, 4},
     "pieces 001, 300x13, 1x77 of 77, 3600000", true, {1, 2, "300x13 at 3900 3900 13"}},
    {"an expanded row", {{1000, 300}, {{300, 1}, {300, 1}, {0, 1}}}, {4, 4, 4},
     "nothing 000, 300x13, 1x77 of 77, 3600000", true, {0, 77, "300x1000 at 0 0 0"}},
    {"transposed", {{600, 400}, {{400, 1}, {1, 600}, {400, 1}}}, {4, 4, 4},
     "tiles 010, 128x32, 4x19 of 76 apart, 2880000", true,
     {3, 6, "16x32 at 384 230400 384, 128x32 at 12800 32 12800, 128x32 at 12928 76832 12928"}},
    {"transposed, the last tile", {{600, 400}, {{400, 1}, {1, 600}, {1, 600}}}, {4, 4, 8},
     "tiles 011, 128x32, 4x19 of 76 apart, 3840000", true, {75, 76, "16x24 at 230784 230976 230976"}},
    {"transposed, short rows", {{40, 300}, {{300, 1}, {1, 40}, {300, 1}}}, {4, 4, 4},
     "tiles 010, 128x32, 3x2 of 6 apart, 144000", true, {2, 4, "44x32 at 256 10240 256, 128x8 at 9600 32 9600"}},
    {"transposed, few rows", {{8, 400}, {{400, 1}, {1, 8}, {400, 1}}}, {2, 2, 2},
     "tiles 010, 400x8, 1x1 of 1 apart, 19200", true, {0, 1, "400x8 at 0 0 0"}},
    {"rows of 257", {{100, 257}, {{257, 1}, {520, 2}, {257, 1}}}, {4, 4, 4}, "pieces 010, 257x15, 1x7 of 7, 308400",
     true, {0, 2, "257x30 at 0 0 0"}},
    {"rows of 256", {{100, 256}, {{256, 1}, {520, 2}, {256, 1}}}, {4, 4, 4},
     "tiles 010, 256x4, 1x25 of 25 apart, 307200", true, {1, 3, "256x4 at 1024 2080 1024, 256x4 at 2048 4160 2048"}},
    {"and one wider input", {{100, 256}, {{256, 1}, {520, 2}, {256, 1}}}, {4, 4, 8},
     "tiles 010, 256x2, 1x50 of 50 apart, 409600", true, {49, 50, "256x2 at 25088 50960 25088"}},
    {"rows of 31", {{100, 31}, {{31, 1}, {64, 2}, {31, 1}}}, {4, 4, 4}, "tiles 010, 31x33, 1x4 of 4 apart, 37200",
     false, {3, 4, "31x1 at 3069 6336 3069"}},
    {"rows of 16", {{1000, 16}, {{16, 1}, {40, 2}, {20, 1}}}, {4, 4, 4}, "tiles 010, 16x64, 1x16 of 16 apart, 192000",
     false, {15, 16, "16x40 at 15360 38400 19200"}},
    {"narrow rows", {{1000, 15}, {{15, 1}, {40, 2}, {20, 1}}}, {4, 4, 4}, "tiles 011, 15x273, 1x4 of 4 apart, 180000",
     false, {3, 4, "15x181 at 12285 32760 16380"}},
    {"narrow rows, none moved", {{1000, 15}, {{15, 1}, {40, 1}, {20, 1}}}, {4, 4, 4},
     "nothing 000, 15x273, 1x4 of 4 apart, 180000", false, {3, 4, "15x181 at 12285 32760 16380"}},
    {"three dimensions", {{5, 40, 300}, {{12000, 300, 1}, {13000, 301, 1}, {0, 300, 1}}}, {4, 4, 4},
     "nothing 000, 300x13, 1x4 of 20, 720000", true,
     {2, 10, "300x14 at 7800 7826 7800, 300x40 at 12000 13000 0, 300x26 at 24000 26000 0"}},
    {"and apart", {{2, 3, 100}, {{300, 100, 1}, {100, 300, 1}, {1, 2, 6}}}, {4, 4, 4},
     "tiles 001, 100x3, 1x1 of 2 apart, 7200", true, {0, 2, "100x3 at 0 0 0, 100x3 at 300 100 1"}},
};
// clang-format on

using Places = std::map<int64_t, Row>; // the place of an element in each operand, by its place in the output

// Computes all places by the definition of strides.
Places all_places(const Layout& layout) {
  Places places;
  for (int64_t i = 0; i < layout.plan().numel(); i++) {
    Row at(layout.strides.size());
    int64_t index = i;
    for (size_t d = layout.sizes.size(); d-- > 0; index /= layout.sizes[d])
      for (size_t k = 0; k < at.size(); k++) at[k] += index % layout.sizes[d] * layout.strides[k][d];
    places[at[0]] = at;
  }
  return places;
}

// Whether the two parts of the tiles together visit each element once.
bool covers(const Plan& plan, const Tiles& tiles, const Places& want, int64_t cut) {
  Places visited;
  size_t visits = 0;
  for (const auto& [begin, end] : {std::pair(int64_t{0}, cut), std::pair(cut, tiles.total)}) {
    Walk walk(plan, tiles, begin, end);
    for (Box box; walk.next(box);)
      for (int64_t j = 0; j < box.n[1]; j++)
        for (int64_t i = 0; i < box.n[0]; i++, visits++) {
          Row at(box.offset, box.offset + plan.operands);
          for (int k = 0; k < plan.operands; k++) at[k] += i * tiles.stride[k][0] + j * tiles.stride[k][1];
          visited[at[0]] = at;
        }
  }
  return visits == want.size() && visited == want;
}

void can_stream() {
  const Layout layout{{2, 64}, {{64, 1}, {80, 1}, {80, 1}}};
  const int bytes[] = {4, 4, 4};
  const Tiles tiles(layout.plan(), computer(1, bytes), kAligned);
  // The addresses of the first two operands, and the number of results.
  for (const auto& [first, second, results, want] :
       {std::array{64, 68, 1, 1}, {66, 64, 1, 0}, {64, 66, 1, 1}, {64, 66, 2, 0}, {64, 68, 2, 1}, {64, 64, 1, 0}}) {
    void* const data[] = {at(first), at(second), nullptr};
    expect("can stream", std::to_string(tiles.can_stream(computer(results, bytes), data, 3)), std::to_string(want));
  }
  for (const auto& [address, want] : {std::pair(0, 0), {4, 15}, {60, 1}, {62, 0}, {64, 0}})
    expect("before a line", std::to_string(Tiles::before_line(at(address), 4)), std::to_string(want));
}

} // namespace

// For a computer without short_rows, several short rows are packed into one, unless they are whole vectors.
void packs_short_rows() {
  const int bytes[] = {4, 4, 4};
  const Computer packing{{}, nullptr, 1, bytes};
  const std::pair<Layout, const char*> table[] = {
      {{{1000, 15}, {{15, 1}, {40, 1}, {20, 1}}}, "tiles 011, 15x273, 1x4 of 4 apart, 180000"},
      {{{1000, 96}, {{96, 1}, {300, 1}, {96, 1}}}, "tiles 000, 96x10, 1x100 of 100 apart, 1152000"},
      {{{1000, 127}, {{127, 1}, {300, 1}, {127, 1}}}, "tiles 010, 127x32, 1x32 of 32 apart, 1524000"},
      {{{1000, 128}, {{128, 1}, {300, 1}, {128, 1}}}, "tiles 000, 128x8, 1x125 of 125 apart, 1536000"},
      {{{1000, 257}, {{257, 1}, {300, 1}, {257, 1}}}, "nothing 000, 257x15, 1x67 of 67, 3084000"},
      {{{10}, {{1}, {1}, {1}}}, "nothing 000, 10x1, 1x1 of 1 apart, 120"},
  };
  for (const auto& [layout, want] : table) expect("packs", show(Tiles(layout.plan(), packing, kAligned), 3), want);
  Computer some = computer(1, bytes);
  some.shortest = 20;
  const std::pair<int64_t, const char*> lengths[] = {
      {19, "tiles 010, 19x215, 1x5 of 5 apart, 228000"},
      {20, "nothing 000, 20x204, 1x5 of 5 apart, 240000"},
  };
  for (const auto& [length, want] : lengths) {
    const Layout layout{{1000, length}, {{length, 1}, {30, 1}, {length, 1}}};
    expect("packs rows that are too short", show(Tiles(layout.plan(), some, kAligned), 3), want);
  }
}

// Columns of a matrix with 6 columns, which begin at these places and have elements of these sizes.
void shares_memory() {
  struct Columns {
    int64_t begin, rows, columns, bytes;
  };
  const int64_t strides[] = {6, 1};
  const auto shares = [&](const Columns& a, const Columns& b) {
    const auto operand = [&](const Columns& of, const int64_t (&sizes)[2]) {
      Operand x{.name = "x", .dim = 2, .sizes = sizes, .strides = strides, .element_bytes = of.bytes};
      x.data = at(4096 + of.begin * of.bytes);
      return x;
    };
    const int64_t of_a[] = {a.rows, a.columns}, of_b[] = {b.rows, b.columns};
    const Operand x = operand(a, of_a), y = operand(b, of_b);
    const bool one = contract::share_memory(x, y), other = contract::share_memory(y, x);
    return one != other ? "depends on the order" : one ? "shares" : "apart";
  };
  expect("columns side by side", shares({0, 5, 4, 4}, {4, 5, 2, 4}), "apart");
  expect("fewer rows", shares({0, 5, 4, 4}, {4, 3, 2, 4}), "apart");
  expect("a common column", shares({0, 5, 4, 4}, {3, 5, 2, 4}), "shares");
  expect("a common row", shares({0, 5, 4, 4}, {24, 1, 6, 4}), "shares");
  expect("no rows", shares({0, 5, 4, 4}, {3, 0, 2, 4}), "apart");
  expect("wider elements", shares({0, 5, 2, 8}, {3, 5, 2, 4}), "shares");
  expect("wider elements side by side", shares({0, 5, 1, 8}, {2, 2, 2, 4}), "apart");
}

int main() {
  shares_memory();
  plans();
  packs_short_rows();
  can_stream();
  for (const auto& [name, layout, bytes, want, streams, walk] : kCalls) {
    const Plan plan = layout.plan();
    const Tiles tiles(plan, computer(1, bytes), kAligned);
    expect(name, show(tiles, plan.operands), want);
    expect(name, tiles.can_stream(computer(1, bytes), kAligned, 3) ? "streams" : "not", streams ? "streams" : "not");
    expect(name, show(plan, tiles, walk.begin, walk.end), walk.boxes);
    if (plan.numel() > 60'000) continue; // would take long
    const Places places = all_places(layout);
    for (int64_t cut = 0; cut <= tiles.total; cut += 1 + tiles.total / 8)
      if (!covers(plan, tiles, places, cut)) expect(name, std::to_string(cut) + " cuts it", "each element once");
  }
  return passed ? 0 : 1;
}
