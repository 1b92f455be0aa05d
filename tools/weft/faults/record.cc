#include "weft/faults/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

std::string text_of(const nlohmann::json& line, const char* key) {
  return line.value(key, std::string());
}

faults::Places places_of(const nlohmann::json& line) {
  faults::Places out;
  const auto at = line.find("at");
  if (at == line.end() || !at->is_array()) return out;
  for (const nlohmann::json& one : *at) {
    if (one.is_string()) out.push_back(one.get<std::string>());
    if (!one.is_object()) continue;  // of a finding
    const int number = one.value("line", 0);
    const std::string function = text_of(one, "function");
    out.push_back(fmt::format("{} ({}{})", function.empty() ? "?" : function, text_of(one, "file"),
                              number != 0 ? fmt::format(":{}", number) : ""));
  }
  return out;
}

template <class Take>
void read_lines(const fs::path& file, Take take) {
  std::ifstream in(file);
  for (std::string text; std::getline(in, text);) {
    const nlohmann::json line = nlohmann::json::parse(text, nullptr, false);
    if (line.is_object()) take(line);
  }
}

// The calls of one process: as many images as it has executed programs.
void read_calls(const fs::path& file, faults::SweepRun& run) {
  faults::Image* image = nullptr;
  read_lines(file, [&](const nlohmann::json& line) {
    if (image == nullptr || line.contains("process")) {
      image = &run.images.emplace_back();
      image->process = text_of(line, "process");
      image->pid = std::atoi(file.stem().c_str());
    }
    if (line.contains("call"))
      image->faults.push_back({text_of(line, "call"), text_of(line, "error"), places_of(line)});
    if (line.contains("calls")) {
      image->ended = true;
      image->calls = line.value("calls", std::uint64_t{0});
      image->status = line.value("status", 0);
    }
    if (line.contains("signal")) image->signal = line.value("signal", 0);
    for (const nlohmann::json& one : line.value("left", nlohmann::json::array()))
      image->left.push_back({text_of(one, "kind"), places_of(one)});
  });
}

void read_findings(const fs::path& file, faults::SweepRun& run) {
  read_lines(file, [&](const nlohmann::json& line) {
    if (text_of(line, "rule").starts_with('N')) return;  // the call that had to fail is one
    run.found.push_back(
        {text_of(line, "rule"), text_of(line, "call"), text_of(line, "text"), places_of(line)});
  });
}

}  // namespace

void read_records(const std::string& folder, faults::SweepRun& run) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) files.push_back(entry.path());
  // By process id: most often in the order in which they began.
  std::ranges::sort(files, {}, [](const fs::path& file) { return std::atol(file.stem().c_str()); });
  for (const fs::path& file : files) {
    if (file.extension() == ".calls") read_calls(file, run);
    if (file.extension() == ".jsonl") read_findings(file, run);
  }
}

std::string last_line(const std::string& output) {
  const std::size_t end = output.find_last_not_of(" \t\r\n");
  if (end == std::string::npos) return {};
  const std::size_t before = output.find_last_of('\n', end);
  const std::size_t start = before == std::string::npos ? 0 : before + 1;
  constexpr std::size_t kMost = 200;
  return output.substr(start, std::min(end + 1 - start, kMost));
}

}  // namespace weft::cli
