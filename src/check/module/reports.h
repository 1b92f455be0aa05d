// The way of findings to the user: their places in the program, and whether they are printed.
//
// One thread at a time, but for is_serious().
#pragma once

#include <atomic>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "check/finding.h"
#include "check/module/frames.h"
#include "check/module/output.h"
#include "check/module/suppressions.h"

namespace weft::check {

inline constexpr std::size_t kShownFrames = 6;  // of a finding

class Reports {
 public:
  // `suppress`: a file of suppressions; `folder`: of the report. Empty: there is none.
  Reports(const std::string& suppress, const std::string& folder);

  // The number of a place, from 1.
  [[nodiscard]] Origin remember(std::vector<void*> trace);
  // Where the program has called Weft. Null: unknown.
  [[nodiscard]] const void* calling_address(Origin origin) const;
  [[nodiscard]] std::vector<PlacedNote> placed(const std::vector<Note>& notes) const;
  // One line of a program is reported once for each rule, however often it runs.
  void add(const Finding& found);
  // In a child of fork(): what comes from now on is its own.
  void begin_anew();
  // An error or a warning was reported.
  [[nodiscard]] bool is_serious() const { return serious_; }

 private:
  [[nodiscard]] std::vector<Frame> frames_of(Origin origin, std::size_t most) const;

  const std::vector<Suppression> suppressed_;
  Output output_;
  std::map<std::vector<void*>, Origin> numbers_;
  std::vector<const std::vector<void*>*> traces_;
  std::set<std::tuple<std::string_view, Origin, std::string>> reported_;
  std::atomic<bool> serious_{false};
};

}  // namespace weft::check
