// Classifies the rows of a CSV file with a model compiled by AOTInductor, in a process without Python: libtorch runs
// the package, and libmuladd_nb.so brings the operators.
#include <ATen/ATen.h>
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <charconv>
#include <cmath>
#include <fstream>
#include <iostream>
#include <sstream>

namespace {

// One row a line, of numbers between commas.
at::Tensor read_rows(const std::string& path, int64_t columns) {
  std::ifstream file(path);
  std::vector<float> values;
  int64_t rows = 0;
  for (std::string line; std::getline(file, line);) {
    const std::string where = path + ", line " + std::to_string(++rows) + ": ";
    const size_t before = values.size();
    std::istringstream cells(line);
    for (std::string cell; std::getline(cells, cell, ',');) {
      float value;
      const char* const end = cell.data() + cell.size();
      const auto [stopped, error] = std::from_chars(cell.data(), end, value);
      if (error != std::errc() || stopped != end || !std::isfinite(value))
        throw std::runtime_error(where + "expected a number, got '" + cell + "'");
      values.push_back(value);
    }
    const int64_t found = values.size() - before;
    if (found != columns)
      throw std::runtime_error(
          where + "the model takes " + std::to_string(columns) + " numbers, got " + std::to_string(found));
  }
  if (rows == 0) throw std::runtime_error(path + ": cannot be read, or has no rows");
  return at::tensor(values).view({rows, columns});
}

// A line for each row: the digit, and how probable the model takes it to be.
void predict(const std::string& package, const std::string& rows) try {
  torch::inductor::AOTIModelPackageLoader model(package);
  const auto metadata = model.get_metadata();
  const auto columns = metadata.find("columns");
  if (columns == metadata.end()) throw std::runtime_error(package + ": does not say how many columns it takes");
  const at::Tensor scores = model.run({read_rows(rows, std::stoll(columns->second))})[0];
  const auto [probability, digit] = scores.softmax(1).max(1);
  for (int64_t i = 0; i < digit.size(0); i++)
    std::cout << digit[i].item<int64_t>() << ' ' << probability[i].item<float>() << '\n';
} catch (const c10::Error& error) { // of libtorch: the package, or an operator
  throw std::runtime_error(package + ": " + error.what_without_backtrace());
}

} // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: predict PACKAGE ROWS [LIBRARY...]\n";
    return 2;
  }
  try {
    for (int i = 3; i < argc; i++)
      if (!dlopen(argv[i], RTLD_NOW)) throw std::runtime_error(dlerror());
    predict(argv[1], argv[2]);
  } catch (const std::exception& error) {
    std::cerr << "predict: " << error.what() << '\n';
    return 1;
  }
}
