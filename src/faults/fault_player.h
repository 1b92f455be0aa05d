// Decides which call, completion or process of one process fails, by the rules of a file. Pure: its
// user brings the time. One thread at a time.
//
// The same run of calls has the same faults: each rule counts what it is about, and chance comes
// from the seed, the rank, the rule, the queue pair and its count.
#pragma once

#include <weft/link.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "faults/fault_file.h"

namespace weft::faults {

// A rule has its effect.
struct Struck {
  int line = 0;             // of the file
  std::uint64_t count = 0;  // the call or completion of this rule, from 1
  int error = 0;            // errno or ibv_wc_status
  bool second = false;      // of a post: its first request goes through
  // The rule that has this effect alone: by a count of one object, and for no process.
  FaultRule exact = {};
};

class FaultPlayer {
 public:
  using Time = std::chrono::nanoseconds;  // since the process began
  // Only the rules that are meant for this process.
  FaultPlayer(FaultFile file, std::string_view rank, std::string_view command_line,
              std::string_view host = {});

  [[nodiscard]] bool has_rules() const { return !rules_.empty(); }

  // The program makes this call. `has_second`: with a list of several requests.
  // `qp`: the number of the queue pair that it is about. `library`: from where, if asks_library().
  // `octets`: of the requests that it posts.
  [[nodiscard]] std::optional<Struck> call(std::string_view name, Time now, bool has_second = false,
                                           std::optional<std::uint32_t> qp = {},
                                           const std::string& library = {},
                                           std::uint64_t octets = 0);
  // A rule wants to know the file name of the library, or program, that makes such a call.
  [[nodiscard]] bool asks_library(std::string_view name) const;
  // Queue pairs are counted as they are made.
  void made_qp(std::uint32_t number);
  // The hosts that rules name as the peer of a queue pair, with the line of the first such rule.
  [[nodiscard]] std::map<std::string, int> peers() const;
  // A queue pair has a connection to a host: those of its names that peers() has.
  void connected(std::uint32_t number, const std::vector<std::string>& names);
  // The queue pair that a rule names, by creation from 0; nothing: there is none yet. `peer`: as
  // FaultRule::peer.
  [[nodiscard]] std::optional<std::uint64_t> named_qp(std::uint64_t number,
                                                      const std::string& peer) const;
  // A rule counts octets: posts() and so on are of interest.
  [[nodiscard]] bool wants_octets() const { return wants_octets_; }
  // A request goes to the send queue: the octets that have done so, with its own. And it was
  // refused, which other threads' requests may have followed. `at`: what posts() said.
  [[nodiscard]] std::uint64_t posts(std::uint32_t qp, std::uint64_t octets, bool signaled);
  void refused(std::uint32_t qp, std::uint64_t octets, std::uint64_t at, bool signaled);
  // Receives go to the receive queue, and were refused.
  void posts_receives(std::uint32_t qp, std::uint64_t octets);
  void refused_receives(std::uint32_t qp, std::uint64_t octets);
  // The requests that are posted complete with an error, or not at all.
  void flushed(std::uint32_t qp);
  // A send request is posted: it is lost, and ends with an error. had_effect() says that it has.
  [[nodiscard]] std::optional<Struck> loses(std::uint32_t qp, Time now);
  // The post was refused, so none of the rules has counted it. `line`: of the rule that was to lose
  // it, or 0.
  void not_posted(std::uint32_t qp, int line);
  // A completion with success is polled. An effect that comes by itself may be due then. `octets`:
  // of a receive.
  [[nodiscard]] std::optional<Struck> completes(std::uint32_t qp, bool receive, Time now,
                                                std::uint64_t octets = 0);
  // An event of rdma_cm that says success is fetched, or one that a connection is over: another
  // one may take its place, or (TIMEWAIT_EXIT) follow.
  struct Replaced {
    Struck struck;
    int event = 0;  // rdma_cm_event_type
  };
  [[nodiscard]] std::optional<Replaced> fetches(int cm_event, Time now);

  // A message takes a receive: it waits so long for it (Struck::exact).
  [[nodiscard]] std::optional<Struck> receives(std::uint32_t qp, Time now);
  // A queue pair has a new connection: what its side sends meets. Each rule is named by its line.
  // `datagrams`: it is of datagrams, and has no connection. Without those of misfits().
  [[nodiscard]] LinkTrouble link_of(std::uint32_t qp, Time now, bool datagrams = false);
  // A rule of a link, or of a lost request, had its effect. True: for the first time.
  bool had_effect(int line, Time now);
  // The rule of a link that has this effect at this octet alone.
  [[nodiscard]] FaultRule exact_of(std::uint32_t qp, int line, std::uint64_t octet) const;
  // Rules that have no effect, or not all of it, on a queue pair of datagrams, or on one with
  // connections.
  struct Misfit {
    int line = 0;
    const char* why = "";
  };
  [[nodiscard]] std::vector<Misfit> misfits(std::uint32_t qp, bool datagrams) const;
  [[nodiscard]] bool has(Effect effect) const;
  // Which one it is, by creation from 0.
  [[nodiscard]] std::optional<std::uint64_t> place_of(std::uint32_t qp) const;

  // The next effect that comes by itself, and when. Nothing: those that are left wait for a rule,
  // or there are no more.
  struct Action {
    Time due{0};
    bool by_rule = false;  // due now: by another rule's effect or a completion, and not by time
    FaultRule rule;
    std::uint64_t place = 0;  // of the rule in the file
  };
  [[nodiscard]] std::optional<Action> next_action() const;
  void acted(const Action& action);
  // The rule that has this effect after the completion that was polled last. Before the first one,
  // `now` is when.
  [[nodiscard]] FaultRule exact_of(const Action& action, Time now) const;

  // The lines of rules for this process that have had no effect.
  [[nodiscard]] std::vector<int> unused() const;

 private:
  struct Live {
    FaultRule rule;
    std::uint64_t place = 0;  // among the rules of the file
    std::uint64_t count = 0;
    bool over = false;
    bool struck = false;                                          // at least once
    bool reached = false;                                         // When::How::kAtCompletion
    std::unordered_map<std::uint64_t, std::uint64_t> of_qp = {};  // counts of its own for each
    std::unordered_map<std::uint64_t, std::uint64_t> marks = {};  // of `at every`: the last one
  };
  // Octets of a queue pair.
  struct Octets {
    std::uint64_t posted = 0, completed = 0;  // of its send queue
    std::deque<std::uint64_t> due;  // `posted` at each request whose completion is to come
    std::uint64_t receives = 0, received = 0;  // of the receives' room, and of messages
  };
  // The counts of a queue pair (0 for calls that are about none).
  struct Count {
    std::uint64_t object = 0, count = 0, octets = 0;
  };

  // A request of this queue pair, of those that a rule is about.
  [[nodiscard]] std::optional<Struck> ends(std::uint32_t qp, Effect effect, bool lost, Time now,
                                           std::uint64_t octets = 0);
  [[nodiscard]] bool strikes(Live& live, const Count& at, Time now);
  [[nodiscard]] static bool reaches(Live& live, const Count& at);
  [[nodiscard]] static std::uint64_t count_octets(Octets& of_qp, bool receive,
                                                  std::uint64_t octets);
  [[nodiscard]] bool by_chance(const Live& live, std::uint64_t object, std::uint64_t count) const;
  // Counts what a rule is about, if it is of this queue pair. Nothing: it is of another one.
  [[nodiscard]] std::optional<std::uint64_t> count_of_qp(Live& live, std::uint64_t place) const;
  // Whether the rule is about this queue pair.
  [[nodiscard]] bool means(const FaultRule& rule, std::uint64_t place) const;
  // True: it is its first effect.
  bool note(Live& live, Time now);
  [[nodiscard]] Struck struck_of(Live& live, std::uint64_t count, Time now);
  void count_polled(std::uint64_t qp, bool receive);

  const std::uint64_t seed_;
  std::vector<Live> rules_;
  std::unordered_map<std::uint32_t, std::uint64_t> qps_;  // number: place
  std::uint64_t made_ = 0;
  std::unordered_map<std::string, Time> named_;  // rules that had their effect, and when first
  // Calls of one name about one queue pair, and those of them with a list of several requests.
  struct Calls {
    std::uint64_t all = 0, lists = 0;
  };
  std::map<std::pair<std::string, std::uint64_t>, Calls> calls_;
  // Completions that were polled, by queue pair and whether they are receives; and the last one.
  using Queue = std::pair<std::uint64_t, bool>;
  std::map<Queue, std::uint64_t> polled_;
  std::optional<Queue> last_polled_;
  std::map<std::string, std::vector<std::uint64_t>> connected_;  // to a host: places, in order
  std::unordered_map<std::uint64_t, Octets> octets_;  // of queue pairs, with wants_octets_
  bool wants_octets_ = false;
};

}  // namespace weft::faults
