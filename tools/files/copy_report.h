// Output of a copy while it runs and at its end: progress on a terminal, failures, the list of
// --dry-run and --json, the file of --manifest, totals.
//
// One thread.
#pragma once

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

#include "files/client/copy_options.h"

namespace weft::data {

struct ReportOptions {
  bool quiet = false;
  bool stats = false;
  bool list = false;  // each thing that is done, or would be
  bool json = false;  // ... one JSON object a line, and the totals
  std::string manifest;
};

class CopyReport {
 public:
  explicit CopyReport(const ReportOptions& options);
  CopyReport(const CopyReport&) = delete;
  CopyReport& operator=(const CopyReport&) = delete;

  // Makes the manifest, which is to hold each name of the copy.
  [[nodiscard]] files::Outcome<void> open();
  // Refers to this object.
  [[nodiscard]] files::CopyWatcher watcher();
  // Says how it went. Returns the exit code.
  [[nodiscard]] int end(const files::CopyTotals& totals, const files::Outcome<void>& done);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  void show(const files::CopyTotals& totals);
  void hide() const;
  void list(const files::CopyStep& step);
  void print_stats(const files::CopyTotals& totals) const;
  [[nodiscard]] files::Outcome<void> close_manifest();
  [[nodiscard]] double elapsed() const;

  const ReportOptions options_;
  const bool shows_;
  bool shown_ = false;
  std::unique_ptr<std::FILE, Close> manifest_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace weft::data
