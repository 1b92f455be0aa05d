// Tells the processes of one run of a sweep which call fails, and how each of them counts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace weft::faults {

struct Plan {
  std::uint64_t nth = 0;        // the call that fails, from 1; 0: none does, they are counted
  std::uint64_t per_place = 0;  // so many calls of one place count; 0: all
  std::string process;          // only in this process (see identity()); empty: in each
  bool operator==(const Plan&) const = default;
};

// The value of WEFT_FAULTS_NTH: NTH, NTH,PER_PLACE or NTH,PER_PLACE,PROCESS.
[[nodiscard]] std::string as_text(const Plan& plan);
// Nothing: it is no such value.
[[nodiscard]] std::optional<Plan> plan_of(std::string_view text);

// Names a process in each run: its rank, if a launcher gave it one, and its command line, whose
// arguments end with a null each.
[[nodiscard]] std::string identity(std::string_view rank, std::string_view arguments);

// The calls of one process. One thread at a time.
class Counter {
 public:
  Counter(const Plan& plan, std::string_view process)
      : plan_(plan), ours_(plan.process.empty() || plan.process == process) {}

  // The program makes such a call at this place. True: it has to fail.
  [[nodiscard]] bool next(std::uint64_t place);
  [[nodiscard]] std::uint64_t count() const { return count_; }

 private:
  Plan plan_;
  bool ours_;
  std::uint64_t count_ = 0;
  std::unordered_map<std::uint64_t, std::uint64_t> places_;
};

}  // namespace weft::faults
