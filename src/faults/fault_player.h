// Decides which call, completion or process of one process fails, by the rules of a file. Pure: its
// user brings the time. One thread at a time.
//
// The same run of calls has the same faults: each rule counts what it is about, and chance comes
// from the seed, the rank, the rule, the queue pair and its count.
#pragma once

#include <weft/link.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "faults/fault_file.h"

namespace weft::faults {

// A rule has its effect.
struct Struck {
  int line = 0;             // of the file
  std::uint64_t count = 0;  // the call or completion of this rule, from 1
  int error = 0;            // errno or ibv_wc_status
  bool second = false;      // of a post: its first request goes through
};

class FaultPlayer {
 public:
  using Time = std::chrono::nanoseconds;  // since the process began
  // Only the rules that are meant for this process.
  FaultPlayer(FaultFile file, std::string_view rank, std::string_view command_line);

  [[nodiscard]] bool has_rules() const { return !rules_.empty(); }

  // The program makes this call. `has_second`: with a list of several requests.
  [[nodiscard]] std::optional<Struck> call(std::string_view name, Time now,
                                           bool has_second = false);
  // Queue pairs are counted as they are made.
  void made_qp(std::uint32_t number);
  // A send request is posted: it is lost, and ends with an error. had_effect() says that it has.
  [[nodiscard]] std::optional<Struck> loses(std::uint32_t qp, Time now);
  // The post was refused, so none of the rules has counted it. `line`: of the rule that was to lose
  // it, or 0.
  void not_posted(std::uint32_t qp, int line);
  // A completion with success is polled.
  [[nodiscard]] std::optional<Struck> completes(std::uint32_t qp, bool receive, Time now);
  // An event of rdma_cm that says success is fetched, or one that a connection is over: another
  // one may take its place, or (TIMEWAIT_EXIT) follow.
  struct Replaced {
    Struck struck;
    int event = 0;  // rdma_cm_event_type
  };
  [[nodiscard]] std::optional<Replaced> fetches(int cm_event, Time now);

  // A queue pair has a new connection: what its side sends meets. Each rule is named by its line.
  [[nodiscard]] LinkTrouble link_of(std::uint32_t qp, Time now);
  // A rule of a link, or of a lost request, had its effect.
  void had_effect(int line, Time now);

  // The next effect that comes by itself, and when. Nothing: those that are left wait for a rule,
  // or there are no more.
  struct Action {
    Time due{0};
    bool by_rule = false;  // due by another rule's effect, and not by time
    FaultRule rule;
  };
  [[nodiscard]] std::optional<Action> next_action() const;
  void acted(const Action& action);

  // The lines of rules for this process that have had no effect.
  [[nodiscard]] std::vector<int> unused() const;

 private:
  struct Live {
    FaultRule rule;
    std::uint64_t place = 0;  // among the rules of the file
    std::uint64_t count = 0;
    bool over = false;
    bool struck = false;                                     // at least once
    std::unordered_map<std::uint64_t, std::uint64_t> of_qp;  // counts of its own for each
  };

  // A request of this queue pair, of those that a rule is about.
  [[nodiscard]] std::optional<Struck> ends(std::uint32_t qp, Effect effect, bool lost, Time now);
  // `object`: which queue pair, 0 for calls.
  [[nodiscard]] bool strikes(Live& live, std::uint64_t object, std::uint64_t count, Time now);
  [[nodiscard]] bool by_chance(const Live& live, std::uint64_t object, std::uint64_t count) const;
  void note(Live& live, Time now);

  const std::uint64_t seed_;
  std::vector<Live> rules_;
  std::unordered_map<std::uint32_t, std::uint64_t> qps_;  // number: place
  std::uint64_t made_ = 0;
  std::unordered_map<std::string, Time> named_;  // rules that had their effect, and when first
};

}  // namespace weft::faults
