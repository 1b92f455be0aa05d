// The progress line on stderr: only on a terminal, and only for runs long enough to want one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/perf/plan.h"

namespace weft::cli {

class Progress {
 public:
  // `wanted`: false keeps it silent whatever stderr is.
  Progress(const Plan& plan, bool wanted);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(std::size_t step);  // step number `step` of the plan begins

 private:
  const Plan& plan_;
  const bool active_;
  const std::int64_t begin_ns_;
  bool shown_ = false;
};

}  // namespace weft::cli
