// The part of a process in `weft faults sweep`: it counts calls, lets one fail, and records both
// for the sweep in PID.calls of the report folder. Each line is a JSON object; docs/faults.md has
// them.
//
//   WEFT_FAULTS_NTH    as faults::plan_of() reads it
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "check/module/output.h"
#include "faults/plan.h"

namespace weft::check {

// One thread at a time.
class FaultRecord {
 public:
  // As the environment wants it; null: the process is not part of a sweep. `folder`: of the report;
  // empty: the call that fails is printed to stderr.
  static std::unique_ptr<FaultRecord> open(const std::string& folder);

  FaultRecord(const faults::Plan& plan, std::string process, const std::string& folder);

  [[nodiscard]] bool by_place() const { return by_place_; }
  // The program makes a call. True: it has to fail, once failing() has written it down.
  [[nodiscard]] bool next(std::uint64_t place);
  // False: it cannot be written, so the call must not fail.
  [[nodiscard]] bool failing(const char* call, int error, const std::vector<Frame>& frames);
  // The process ends, with this exit status and these handles.
  void ended(int status, const std::vector<PlacedNote>& left);

 private:
  const bool by_place_;
  const std::string process_;
  const std::string file_;  // empty: stderr
  faults::Counter counter_;
  bool started_ = false;
};

}  // namespace weft::check
