// The rules of `weft run --check`. Events in, findings out: no operating system but for a lock, no
// clock.
//
// One thread at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "check/finding.h"
#include "check/keys.h"
#include "check/observer.h"
#include "check/ranges.h"
#include "check/sources.h"

namespace weft::check {

class Rules {
 public:
  struct Watched {
    const void* handle = nullptr;
    Kind kind{};
  };
  using Looks = std::unordered_map<const void*, std::string>;
  using Unreads = std::unordered_map<const void*, Unread>;
  using Place = std::function<void(Finding&)>;
  using IsBroken = std::function<bool(const void* qp)>;
  // `place` puts where the program is now into a finding whose event came without.
  // `sum` is of memory as it is now. `is_broken`: the queue pair is in the error state.
  explicit Rules(
      std::function<void(const Finding&)> report, Place place = [](Finding&) {},
      Sum sum = [](auto) { return Summed{}; }, IsBroken is_broken = [](auto) { return false; })
      : report_(std::move(report)),
        place_(std::move(place)),
        sum_(std::move(sum)),
        is_broken_(std::move(is_broken)) {}

  // A rule that is off otherwise. False: there is none of that name.
  bool turn_on(std::string_view rule);
  void made(const Made& object, Here here);
  void destroyed(const void* handle, Here here);
  void keyed(const Keyed& key, Here here);
  void invalidated(std::uint32_t key, bool by_peer, Here here);
  // True: it was ours once, and E02 was reported.
  bool not_live(const void* handle, Here here);
  // In a child of fork(), with the rules of its parent as they were then.
  void inherited(const void* handle, Here here);
  // `refused`: the queue pair, if the call has told not_posted().
  void failed(int error, std::string_view name, Here here, const void* refused = nullptr);
  void busy(const void* handle, Here here);
  void owes(const void* handle, Owed what, std::uint32_t count, Here here);
  // A thread.
  using Thread = std::uintptr_t;
  // Its number, for not_posted(). 0: there is none.
  std::uint64_t posting(const Posted& request, Here here, Thread by = 0);
  void not_posted(const void* qp, std::uint64_t number);
  // The last posting() or posting_receive() was of more than was asked for: returned() is of
  // interest, once the call is over and what was not refused is in the queue.
  [[nodiscard]] bool exceeds() const { return exceeds_; }
  void returned(const void* queue, Thread by);
  // Any thread at any time: for Poll.
  [[nodiscard]] std::uint64_t posts() const { return posts_; }
  struct Poll {
    Thread by;
    std::uint64_t behind;  // posts() when it began
  };
  void completed(const Completed& completion, Here here, Poll poll = {0, ~std::uint64_t{0}});
  void emptied(const void* qp, Here here);
  // Whether a message waits for a receive: the place of posting_receive() is of interest.
  [[nodiscard]] bool awaits_receive() const { return waiting_ > 0; }
  void posting_receive(const PostedReceive& receive, Here here, Thread by = 0);
  void not_posted_receive(const PostedReceive& receive);
  void refused(const Refused& what);
  // The program has memory for itself, and lets it go.
  void owns(const Octets& memory, Here here) { owned_.add(memory, here.at); }
  void releases(const Octets& memory) { owned_.remove(memory); }
  // Whether accessed() is of interest.
  [[nodiscard]] bool wants_accesses() const { return !owned_.is_empty() || checks_writers_; }
  void accessed(const Accessed& what);
  // Memory that outstanding requests use lies between these; first >= second: there is none.
  [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> watched();
  // Any thread at any time. False: no outstanding request uses it.
  [[nodiscard]] bool may_use(const Octets& memory) const {
    return sinks_.has({&memory, 1}) || sources_.overlap({&memory, 1});
  }
  // The program gives memory back. True: nothing uses it.
  [[nodiscard]] bool is_free(const Octets& memory);
  void gone(const Octets& memory, Here here);
  void reads_undefined(const void* cq, Here here, std::string_view status, bool success);
  void overflows(const void* cq, std::size_t queued, std::uint32_t asked, Here here);
  void armed(const void* cq, std::size_t queued, Thread by, Here here);
  void polls(const void* cq, Thread by);
  void entered_twice(const void* handle, Here here);
  void waits(const void* channel, std::size_t armed, Thread by, Here here);
  void took_event(const void* cq, Thread by, Here here);
  void late_receive(const void* qp, Late what, std::uint64_t waited_ns);
  // Queue pairs and completion queues, the oldest first, if for so long nothing has completed to
  // one that waits, which was not reported yet; else nothing. To be asked again and again.
  [[nodiscard]] std::vector<Watched> hung(std::uint64_t now_ns, std::uint64_t limit_ns);
  // Reports it. `looks`: how each of them looks to the libraries.
  void hangs(std::uint64_t limit_ns, const Looks& looks);
  void closing(const void* context, const Unread& left, Here here);
  // The process ends. `unread`: of those that may have something.
  void ended(const Unreads& unread = {});
  [[nodiscard]] std::vector<Watched> may_have_unread() const;
  // The program's objects that are alive, in the order in which they were made.
  [[nodiscard]] std::vector<Note> left() const;

 private:
  struct Slot {
    Posted request;
    std::uint64_t number = 0;
    bool replied = false;  // a receive of this queue pair was polled since
    // The memory that it reads.
    bool watched = false;  // it is among sources_: the peer has not answered
    Origin posted = 0;
    std::string call;
    std::optional<std::uint64_t> sum;  // as it was posted; nothing: it is not looked at
    bool shared = false;               // another request may write there
  };
  // Messages that came to a queue pair before their receive.
  struct LateOnes {
    bool waiting = false;
    Origin posted = 0;  // where the receive was posted that the waiting one gets
    std::string call;   // by this function
    std::uint64_t came = 0, refused = 0, lost = 0;
    std::uint64_t longest_ns = 0;
    Origin longest_posted = 0;
    std::string longest_call;
    bool reported = false;  // E60
  };
  // More than was asked for, and the libraries had room for it. If the thread polls without having
  // been refused, the program does not know; while another one polls, it may be refused yet.
  struct Excess {
    Finding finding;
    std::uint64_t number = 0;  // of the request
    Thread by = 0;
    std::uint64_t since = 0;  // posts() when the call was over; 0: it is not
  };
  // Requests beyond what was asked for, and posts that were refused: a program may post until it is
  // refused, and then poll.
  struct Fullness {
    std::optional<Excess> beyond;    // E20
    std::optional<Finding> refused;  // N01, if the program does not go on
    bool polled = false;             // a completion that frees slots, since it was refused
    bool known = false;              // the program goes on after it was refused
  };
  // How a queue pair gets on: N70.
  struct Progress {
    std::uint64_t polled = 0;                      // completions
    std::string last;                              // the last of them
    Origin received = 0;                           // where a receive was posted last
    std::string received_by;                       // by this function
    std::pair<std::uint64_t, std::uint64_t> seen;  // `polled` and the oldest request, at a look
    std::uint64_t since_ns = 0;                    // that was so for the first time then
    bool told = false;
  };
  struct Object {
    Made made;
    Here born, died, refused;
    std::string born_call;
    bool dead = false;
    bool of_rdma_cm = false;  // librdmacm made it, and keeps it for all ids
    std::string refused_call;
    std::vector<Note> children;      // at the time of the refusal
    std::deque<Slot> slots;          // of a queue pair: requests whose slots an adapter would hold
    bool failed = false;             // of a queue pair: an error completion was reported
    bool flushes = false;            // of a queue pair: one was polled
    std::uint64_t last_post = 0;     // of a queue pair: the number of its last request
    LateOnes late;                   // of a queue pair
    Fullness full;                   // of a queue pair
    Progress progress;               // of a queue pair; `received` of a shared receive queue, too
    std::optional<Refused> memory;   // of a queue pair: an SGE that was refused last
    std::size_t receives = 0;        // of a queue pair: posted, and not polled
    std::optional<Excess> crowded;   // W21: too many of them
    bool overflowed = false;         // of a completion queue: E23
    std::size_t armed_with = 0;      // of a completion queue: what was there, if nobody has polled
    std::uint64_t armed_behind = 0;  // the last request of the process then
    Origin armed_at = 0;
    std::string armed_call;
    Thread armed_by = 0;
    Thread polled_by = 0;  // the last one
    bool polled_by_several = false;
  };

  // The order in which objects were made.
  static constexpr auto kAge = [](const Object* object) { return object->born.at; };

  static constexpr std::size_t kSrqOfQp = 3;  // its place among the parents

  [[nodiscard]] Object* find(const void* handle);
  [[nodiscard]] const Object* find(const void* handle) const;
  [[nodiscard]] std::vector<Note> children_of(const void* handle) const;
  void check_depth(Object& qp, Here here, Thread by);
  void exceeded(std::optional<Excess>& what, Finding finding, Thread by);
  void judge(std::optional<Excess>& what, Poll poll);
  void check_room(const Object& qp, Here here);
  void check_sizes(const Object& qp, const Posted& request, Here here);
  void goes_on(Fullness& full);
  void note_memory(Slot& slot);
  void watch(const std::vector<Octets>& octets);
  void let_go(Slot& slot);
  void let_go_of_all(Object& qp);
  [[nodiscard]] bool is_use(const Octets& one, const Octets& memory) const;
  // The request whose sources overlap. One that the peer has answered may be done, as far as the
  // program knows: W11.
  [[nodiscard]] Slot* user_of(const Octets& memory);
  [[nodiscard]] Sinks::Found writer_to(const Octets& memory) const;
  void share(const std::vector<Octets>& sinks);
  void check_memory(const Object& qp, const Slot& slot);
  void receive_polled(Object& qp, const Completed& completion, Poll poll);
  void check_owned(const Object& qp, const Octets& memory, std::string_view by);
  void check_writers(const Object& qp, const Accessed& what);
  void check_sinks(const void* queue, const std::vector<Octets>& sinks, Here here);
  void check_keys(const Posted& request, const Object& qp, Here here);
  [[nodiscard]] bool is_lkey_for_rkey(const Posted& request, std::uint32_t key);
  void check_lkeys(const std::vector<Octets>& octets, const Object& queue, Here here);
  void check_receive(Object& queue, const PostedReceive& receive, Here here, Thread by);
  void sum_up_full(Object& qp);
  void check_due(const Object& qp, std::string_view what, std::size_t receives, Here here);
  [[nodiscard]] std::vector<const Object*> alive() const;
  [[nodiscard]] static bool is_served_by(const Object& cq, Thread thread);
  [[nodiscard]] bool is_event_due(const Object& cq) const;
  void report_leaks();
  void report_unread(const Unreads& unread);
  [[nodiscard]] bool is_broken(const void* cq, const Unreads& unread) const;
  [[nodiscard]] Finding unread_events(const Unread& left, std::string_view when) const;
  [[nodiscard]] std::string memory_of(const Object& qp, const Posted& request,
                                      std::vector<Note>& notes) const;
  void note_progress(Object& qp, const Completed& completion);
  [[nodiscard]] static bool awaits_request(const Object& qp);
  // Posted ones, of its shared receive queue too.
  [[nodiscard]] const Object& receives_of(const Object& qp) const;
  // Longer than the limit without a completion that it waits for, as of this look.
  [[nodiscard]] bool is_stuck(Object& qp, std::uint64_t now_ns, std::uint64_t limit_ns) const;
  [[nodiscard]] Note state_of(const Object& qp, const Looks& looks) const;
  void set_waiting(LateOnes& late, bool waiting);
  void report_no_receive(Object& qp, const std::string& what);
  void sum_up_late(Object& qp);
  [[nodiscard]] static Note made_note(const Object& object);

  const std::function<void(const Finding&)> report_;
  const Place place_;
  const Sum sum_;
  const IsBroken is_broken_;
  Keys keys_;
  std::unordered_set<std::uint32_t> rkeys_;  // that requests had, but for W22
  Sinks sinks_;
  Pieces sources_;                          // those of requests that may be read still
  std::unordered_set<const void*> summed_;  // queue pairs that may have requests with sums
  std::pair<std::uint64_t, std::uint64_t> watched_{~std::uint64_t{0}, 0};
  Ranges owned_;
  // Octets that were placed of RDMA Writes that go on, by queue pair.
  std::unordered_map<const void*, std::vector<Octets>> open_writes_;
  bool checks_writers_ = false;          // W15
  bool checks_sinks_ = false;            // N14
  bool checks_leaks_ = false;            // N52
  bool checks_room_ = false;             // N24
  std::atomic<std::uint64_t> posts_{0};  // receives too
  std::uint64_t completions_ = 0;
  std::pair<std::uint64_t, std::uint64_t> quiet_;  // completions_ at a look, and since when
  bool exceeds_ = false;
  std::unordered_map<const void*, Object> objects_;
  std::unordered_map<std::uint32_t, const void*> qps_;
  std::size_t waiting_ = 0;  // queue pairs with a message that waits for its receive
};

[[nodiscard]] std::string_view name_of(Kind kind);

}  // namespace weft::check
