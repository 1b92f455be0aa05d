// Replays fuzzer inputs without libFuzzer: each argument is an input file or a folder of them.
//
// Linked to every fuzz target outside the fuzz build, so that ctest runs each saved input through
// any compiler and sanitizer. Fails when there is no input at all: a corpus that went missing must
// not pass for a corpus without crashes.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes);

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> collect_inputs(int argc, char** argv) {
  std::vector<fs::path> inputs;
  for (int i = 1; i < argc; ++i) {
    const fs::path path = argv[i];
    if (!fs::is_directory(path)) {
      inputs.push_back(path);
      continue;
    }
    for (const auto& entry : fs::recursive_directory_iterator(path)) {
      if (entry.is_regular_file()) inputs.push_back(entry.path());
    }
  }
  std::sort(inputs.begin(), inputs.end());
  return inputs;
}

bool replay(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "cannot read %s\n", path.c_str());
    return false;
  }
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::uint8_t> input(bytes.begin(), bytes.end());
  // Printed before the run, so that the last line names the input that crashed.
  std::printf("%s: %zu bytes\n", path.c_str(), input.size());
  std::fflush(stdout);
  LLVMFuzzerTestOneInput(input.data(), input.size());
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<fs::path> inputs = collect_inputs(argc, argv);
  if (inputs.empty()) {
    std::fprintf(stderr, "usage: %s FILE-OR-FOLDER...  (no input found)\n", argv[0]);
    return 2;
  }
  const bool all_read = std::all_of(inputs.begin(), inputs.end(), replay);
  std::printf("%zu inputs replayed\n", inputs.size());
  return all_read ? 0 : 1;
}
