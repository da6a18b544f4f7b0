// Runs a model on the rows of a CSV file and prints its output, a row for each: digits MODEL.pte ROWS.csv
// There is no Python here, and no torch.
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

#include <charconv>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

using executorch::aten::SizesType;
using executorch::extension::from_blob;
using executorch::extension::Module;
using executorch::runtime::Error;

namespace {

void check(Error error, const std::string& what) {
  if (error != Error::Ok) throw std::runtime_error(what + ": " + executorch::runtime::to_string(error));
}

std::vector<float> read_row(const std::string& line, size_t columns) {
  std::vector<float> row;
  std::istringstream stream(line);
  for (std::string field; std::getline(stream, field, ',');) {
    const char* const end = field.data() + field.size();
    if (std::from_chars(field.data(), end, row.emplace_back()).ptr != end || field.empty())
      throw std::runtime_error("not a number: " + field);
  }
  if (row.size() != columns)
    throw std::runtime_error(
        "a row must have " + std::to_string(columns) + " numbers, as the model does, got " +
        std::to_string(row.size()));
  return row;
}

void run(const std::string& model, const std::string& csv) {
  Module module(model);
  check(module.load_method("forward"), "cannot load " + model); // the log says why, like a missing operator
  const auto meta = module.method_meta("forward");
  check(meta.error(), "cannot read " + model);
  const auto input = meta->input_tensor_meta(0);
  check(input.error(), "cannot read the input of " + model);
  const SizesType most_rows = input->sizes()[0], columns = input->sizes()[1]; // memory is planned for these

  std::ifstream file(csv);
  if (!file) throw std::runtime_error("cannot read " + csv);
  std::string line;
  while (file) {
    std::vector<float> x;
    SizesType rows = 0;
    for (; rows < most_rows && std::getline(file, line); rows++) {
      const std::vector<float> row = read_row(line, columns);
      x.insert(x.end(), row.begin(), row.end());
    }
    if (rows == 0) break;
    const auto result = module.forward(from_blob(x.data(), {rows, columns}));
    check(result.error(), "cannot run " + model);
    const auto y = result->at(0).toTensor();
    const float* value = y.const_data_ptr<float>();
    for (SizesType i = 0; i < rows; i++)
      for (SizesType j = 0; j < y.size(1); j++) // nine digits give the same float again
        std::printf("%.9g%c", *value++, j + 1 < y.size(1) ? ',' : '\n');
  }
}

} // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s MODEL.pte ROWS.csv\n", argv[0]);
    return 2;
  }
  try {
    run(argv[1], argv[2]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}
