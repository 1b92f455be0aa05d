#include "check/module/fault_play.h"

#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <thread>

#include "check/module/observe.h"
#include "check/module/output.h"
#include "check/module/own_thread.h"
#include "check/module/process_name.h"
#include "os/say.h"

namespace weft::check {
namespace {

using faults::Effect;
using faults::FaultPlayer;
using faults::FaultRule;

constexpr int kFlushed = 5;  // IBV_WC_WR_FLUSH_ERR
// Numbers of ibv_event_type.
constexpr int kCqError = 0, kQpFatal = 1, kQpAccessError = 3, kDeviceFatal = 8;

std::uint64_t queue_of(std::uint32_t qp, bool receive) {
  return std::uint64_t{qp} * 2 + (receive ? 1 : 0);
}

double milliseconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

std::string rate_text(std::uint64_t bits_per_second) {
  if (bits_per_second == 0) return {};
  return ", rate " + std::to_string(bits_per_second / 1000) + " kbit/s";
}

std::string loss_text(double percent) {
  if (percent == 0) return {};
  std::array<char, 32> out{};
  static_cast<void>(std::snprintf(out.data(), out.size(), ", loss %.3g %%", percent));
  return out.data();
}

}  // namespace

std::unique_ptr<FaultPlay> FaultPlay::open() {
  const char* text = std::getenv("WEFT_FAULTS_FILE");
  if (text == nullptr) return nullptr;
  auto file = faults::parse_faults(text);
  if (!file) {
    os::say("weft: WEFT_FAULTS_FILE: %s\n", file.error().c_str());
    return nullptr;
  }
  std::string words = command_line();
  while (words.ends_with('\0')) words.pop_back();
  std::ranges::replace(words, '\0', ' ');
  const char* const log = std::getenv("WEFT_FAULTS_RECORD");
  const std::string rank = rank_of_process();
  std::array<char, 256> host{};
  static_cast<void>(gethostname(host.data(), host.size() - 1));
  FaultPlayer player(std::move(*file), rank, words, host.data());
  if (!player.has_rules()) return nullptr;
  return std::make_unique<FaultPlay>(std::move(player),
                                     FaultLog(log != nullptr ? log : "", rank, words));
}

FaultPlay::FaultPlay(FaultPlayer player, FaultLog log)
    : player_(std::move(player)), peers_(player_.peers()), log_(std::move(log)) {}

std::string FaultPlay::library_of(const void* address) {
  Dl_info found{};
  if (address == nullptr || dladdr(address, &found) == 0 || found.dli_fname == nullptr) return {};
  const std::string_view path = found.dli_fname;
  return std::string(path.substr(path.rfind('/') + 1));
}

std::optional<std::uint32_t> FaultPlay::number_of(const void* qp) const {
  const auto known = known_.find(qp);
  const bool is_qp = known != known_.end() && known->second.kind == Kind::kQp;
  return is_qp ? std::optional(known->second.number) : std::nullopt;
}

std::chrono::nanoseconds FaultPlay::now() const {
  return std::chrono::nanoseconds(os::monotonic_ns() - began_ns_);
}

// It sleeps until then: the program may make no call any more. It has rules of its own, in which
// only those that wait for a time are of interest.
void FaultPlay::start(std::function<void(const Action&)> act) const {
  if (!player_.next_action()) return;
  in_background("--faults",
                [player = player_, began_ns = began_ns_, process = getpid(), act]() mutable {
                  while (const auto action = player.next_action()) {
                    const std::chrono::nanoseconds now(os::monotonic_ns() - began_ns);
                    std::this_thread::sleep_for(action->due - now);
                    if (getpid() != process) return;
                    player.acted(*action);
                    if (!action->by_rule) act(*action);
                  }
                });
}

void FaultPlay::act(const Action& action) {
  const FaultRule& rule = action.rule;
  log_.write(player_.exact_of(action, now()));
  player_.acted({now(), action.by_rule, rule, action.place});
  if (rule.effect == Effect::kEvent) raise(rule);
  if (rule.effect == Effect::kCmOfAll) raise_cm(rule);
  if (rule.effect == Effect::kDisconnect) disconnect(rule);
  if (rule.effect == Effect::kKill) {
    tell_user("weft faults: line %d: this process gets SIG%s\n", rule.line,
              sigabbrev_np(rule.number));
    orders_.push_back({Order::What::kKill, nullptr, rule.number});
  }
  act_if_due();
}

void FaultPlay::act_if_due() {
  // Those by time are the other thread's.
  for (auto action = player_.next_action(); action && action->by_rule;
       action = player_.next_action()) {
    act(*action);
  }
}

const FaultPlay::Known* FaultPlay::find(const FaultRule& rule) const {
  const auto& made = made_[static_cast<std::size_t>(rule.object)];
  const std::uint64_t place =
      player_.named_qp(rule.place, rule.peer).value_or(std::numeric_limits<std::uint64_t>::max());
  const auto known = place < made.size() ? known_.find(made[place]) : known_.end();
  if (known != known_.end()) return &known->second;
  tell_user("weft faults: line %d: there is no such object now, so nothing happens\n", rule.line);
  return nullptr;
}

void FaultPlay::break_users(const void* cq) {
  for (const auto& [handle, one] : known_) {
    if (one.kind != Kind::kQp) continue;
    if (cq == nullptr || one.send_cq == cq || one.receive_cq == cq)
      orders_.push_back({Order::What::kBreak, handle});
  }
}

// As an adapter does before it tells: a queue pair with an error does nothing more.
void FaultPlay::raise(const FaultRule& rule) {
  const void* handle = nullptr;
  if (rule.object != faults::Object::kDevice) {
    const Known* const object = find(rule);
    if (object == nullptr) return;
    handle = object->handle;
    if (rule.number >= kQpFatal && rule.number <= kQpAccessError)
      orders_.push_back({Order::What::kBreak, handle});
  }
  if (rule.number == kCqError) break_users(handle);
  if (rule.number == kDeviceFatal) break_users(nullptr);
  tell_user("weft faults: line %d: the event %s\n", rule.line,
            std::string(faults::event_name(rule.number)).c_str());
  orders_.push_back({Order::What::kRaise, handle, rule.number});
}

// A device that goes has its queue pairs in the error state, and says so by an asynchronous event.
void FaultPlay::raise_cm(const FaultRule& rule) {
  if (rule.number == faults::kDeviceRemoval) {
    break_users(nullptr);
    orders_.push_back({Order::What::kRaise, nullptr, kDeviceFatal});
  }
  tell_user("weft faults: line %d: the event %s of rdma_cm, for each id\n", rule.line,
            std::string(faults::cm_event_name(rule.number)).c_str());
  orders_.push_back({Order::What::kRaiseCm, nullptr, rule.number});
}

void FaultPlay::disconnect(const FaultRule& rule) {
  const Known* const qp = find(rule);
  if (qp == nullptr) return;
  tell_user("weft faults: line %d: the connection of queue pair number %u breaks\n", rule.line,
            qp->number);
  orders_.push_back({Order::What::kDisconnect, qp->handle});
}

void FaultPlay::say(const faults::Struck& struck, const char* call,
                    const std::vector<Frame>& frames) {
  tell_user("weft faults: line %d: %s, call %llu of it, fails with %s\n  called at %s\n",
            struck.line, call, static_cast<unsigned long long>(struck.count),
            strerrorname_np(struck.error), places(frames, "\n         by ").c_str());
  log_.write(struck.exact);
  act_if_due();
}

void FaultPlay::made(const Made& object) {
  const auto object_of = [](Kind kind) {
    return kind == Kind::kQp    ? faults::Object::kQp
           : kind == Kind::kCq  ? faults::Object::kCq
           : kind == Kind::kSrq ? faults::Object::kSrq
                                : faults::Object::kDevice;
  };
  const auto kind = object_of(object.kind);
  if (kind == faults::Object::kDevice) return;
  made_[static_cast<std::size_t>(kind)].push_back(object.handle);
  known_[object.handle] = {object.handle,     object.kind,       object.number,
                           object.parents[1], object.parents[2], object.is_datagram};
  if (object.kind != Kind::kQp) return;
  emptied(object.handle);  // another one may have had this number
  of_number_[object.number] = object.handle;
  player_.made_qp(object.number);
  if (object.is_datagram) tell_misfits(known_[object.handle]);
}

// Once for each rule, though it may mean several of them.
void FaultPlay::tell_misfits(const Known& qp) {
  for (const auto& [line, why] : player_.misfits(qp.number, qp.is_datagram)) {
    if (!told_misfits_.insert({line, qp.is_datagram}).second) continue;
    tell_user("weft faults: line %d: no effect on queue pair number %u%s: %s\n", line, qp.number,
              qp.is_datagram ? ", which is of datagrams (UD)" : "", why);
  }
}

void FaultPlay::destroyed(const void* handle) { known_.erase(handle); }

void FaultPlay::emptied(const void* handle) {
  const auto known = known_.find(handle);
  if (known == known_.end()) return;
  broken_.erase(queue_of(known->second.number, false));
  broken_.erase(queue_of(known->second.number, true));
  player_.flushed(known->second.number);
  lost_.erase(handle);
}

std::uint64_t FaultPlay::posting(const Posted& request) {
  const auto qp = number_of(request.qp);
  return qp ? player_.posts(*qp, request.bytes, request.signaled) : 0;
}

void FaultPlay::refused(const void* qp, std::uint64_t octets, std::uint64_t at, bool signaled) {
  if (const auto number = number_of(qp)) player_.refused(*number, octets, at, signaled);
}

void FaultPlay::posting_receive(const PostedReceive& receive) {
  if (const auto qp = number_of(receive.queue)) player_.posts_receives(*qp, receive.octets);
}

void FaultPlay::refused_receive(const PostedReceive& receive) {
  if (const auto qp = number_of(receive.queue)) player_.refused_receives(*qp, receive.octets);
}

// The queue pair breaks by the request itself: what was posted before it is done first.
bool FaultPlay::loses(const void* qp, std::uint64_t wr_id) {
  const auto known = known_.find(qp);
  if (known == known_.end()) return false;
  const auto struck = player_.loses(known->second.number, now());
  return struck && lost_.try_emplace(qp, Lost{wr_id, *struck}).second;
}

void FaultPlay::not_posted(const void* qp, bool lost) {
  const auto known = known_.find(qp);
  if (known == known_.end()) return;
  const auto of_qp = lost ? lost_.extract(qp) : decltype(lost_)::node_type();
  player_.not_posted(known->second.number, of_qp.empty() ? 0 : of_qp.mapped().by.line);
}

// A request that was lost fails: this is when its rule has its effect.
int FaultPlay::fails(std::uint32_t qp, std::uint64_t wr_id) {
  const auto number = of_number_.find(qp);
  const auto lost = number != of_number_.end() ? lost_.find(number->second) : lost_.end();
  if (lost == lost_.end() || lost->second.wr_id != wr_id) return 0;
  faults::Struck by = std::move(lost->second.by);
  lost_.erase(lost);
  if (!player_.had_effect(by.line, now())) by.exact.name.clear();
  log_.write(by.exact);
  tell_user("weft faults: line %d: queue pair number %u: request %llu is lost, and ends with %s\n",
            by.line, qp, static_cast<unsigned long long>(by.count),
            std::string(faults::status_name(by.error)).c_str());
  act_if_due();
  return by.error;
}

int FaultPlay::completes(const Polled& completion) {
  const std::uint32_t qp = completion.qp_number;
  const bool receive = completion.receive;
  if (completion.status != 0) {
    player_.flushed(qp);
    return completion.status == kFlushed ? 0 : fails(qp, completion.wr_id);
  }
  if (broken_.contains(queue_of(qp, receive))) return kFlushed;
  const auto struck = player_.completes(qp, receive, now(), completion.octets);
  if (!struck) {
    act_if_due();
    return 0;
  }
  log_.write(struck->exact);
  broken_.insert(queue_of(qp, receive));
  tell_user("weft faults: line %d: queue pair number %u: completion %llu of a %s ends with %s\n",
            struck->line, qp, static_cast<unsigned long long>(struck->count),
            receive ? "receive" : "send request",
            std::string(faults::status_name(struck->error)).c_str());
  orders_.push_back({Order::What::kBreak, of_number_[qp]});
  act_if_due();
  return struck->error;
}

std::chrono::nanoseconds FaultPlay::receive_late(const void* qp) {
  const auto number = number_of(qp);
  const auto struck = number ? player_.receives(*number, now()) : std::nullopt;
  if (!struck) return {};
  tell_user(
      "weft faults: line %d: queue pair number %u: message %llu waits %.3g ms for its receive\n",
      struck->line, *number, static_cast<unsigned long long>(struck->count),
      milliseconds(struck->exact.late));
  log_.write(struck->exact);
  act_if_due();
  return struck->exact.late;
}

LinkTrouble FaultPlay::link(const void* qp, const std::string& peer) {
  const auto known = known_.find(qp);
  if (known == known_.end()) return {};
  player_.connected(known->second.number, peers_.of(peer));
  const Known& of = known->second;
  if (!of.is_datagram) tell_misfits(of);
  LinkTrouble out = player_.link_of(of.number, now(), of.is_datagram);
  if (out.delay.count() != 0 || out.jitter.count() != 0 || out.bits_per_second != 0 ||
      out.loss_percent > 0) {
    tell_user(
        "weft faults: the link of queue pair number %u has delay %.3g ms, jitter %.3g ms%s%s\n",
        of.number, milliseconds(out.delay), milliseconds(out.jitter),
        rate_text(out.bits_per_second).c_str(), loss_text(out.loss_percent).c_str());
    FaultRule exact;
    exact.effect = Effect::kLink;
    exact.qp = player_.place_of(of.number);
    exact.link.delay = out.delay;
    exact.link.jitter = out.jitter;
    exact.link.bits_per_second = out.bits_per_second;
    exact.link.loss_percent = out.loss_percent;
    log_.write(std::move(exact));
  }
  return out;
}

FaultPlay::LinkOwner FaultPlay::owner_of(const void* qp) const {
  const auto number = number_of(qp);
  return number ? LinkOwner{*number, player_.place_of(*number)} : LinkOwner{};
}

void FaultPlay::link_struck(const LinkOwner& of, const LinkRule& rule, std::uint64_t octet,
                            bool possible) {
  const std::uint32_t qp = of.number;
  const auto at = static_cast<unsigned long long>(octet);
  if (!possible) {
    const char* const why = rule.what == LinkRule::What::kFlip
                                ? "its connection has no CRC (weft run --crc), or is no TCP"
                                : "its connection is no TCP (weft run --path tcp)";
    return tell_user("weft faults: line %d: no effect on queue pair number %u: %s\n", rule.name, qp,
                     why);
  }
  FaultRule exact = player_.exact_of(qp, rule.name, octet);
  exact.qp = of.place;
  if (!player_.had_effect(rule.name, now())) exact.name.clear();
  log_.write(std::move(exact));
  switch (rule.what) {
    case LinkRule::What::kStall:
      tell_user(
          "weft faults: line %d: the link of queue pair number %u stalls for %.3g ms at octet "
          "%llu\n",
          rule.name, qp, milliseconds(rule.length), at);
      break;
    case LinkRule::What::kCut:
      tell_user("weft faults: line %d: the link of queue pair number %u is cut at octet %llu\n",
                rule.name, qp, at);
      break;
    case LinkRule::What::kFlip:
      tell_user("weft faults: line %d: queue pair number %u: a bit of octet %llu changes\n",
                rule.name, qp, at);
      break;
  }
  act_if_due();
}

void FaultPlay::ended() const {
  for (const int line : player_.unused())
    tell_user("weft faults: line %d had no effect in this process\n", line);
}

InjectedCm FaultPlay::fetches(int cm_event) {
  const auto replaced = player_.fetches(cm_event, now());
  if (!replaced) return {};
  log_.write(replaced->struck.exact);
  if (replaced->event == faults::kTimewaitExit) {
    tell_user("weft faults: line %d: TIMEWAIT_EXIT comes behind DISCONNECTED %llu\n",
              replaced->struck.line, static_cast<unsigned long long>(replaced->struck.count));
    act_if_due();
    return {true, replaced->event, 0, true};
  }
  tell_user("weft faults: line %d: event %llu of rdma_cm becomes %s with %s\n",
            replaced->struck.line, static_cast<unsigned long long>(replaced->struck.count),
            std::string(faults::cm_event_name(replaced->event)).c_str(),
            strerrorname_np(replaced->struck.error));
  act_if_due();
  return {true, replaced->event, replaced->struck.error, false,
          replaced->struck.exact.private_data};
}

void obey(const Hands& hands, const FaultPlay::Order& order) {
  switch (order.what) {
    case FaultPlay::Order::What::kBreak: return hands.break_qp(order.handle);
    case FaultPlay::Order::What::kDisconnect: return hands.disconnect(order.handle);
    case FaultPlay::Order::What::kRaise: return hands.raise(order.number, order.handle);
    case FaultPlay::Order::What::kRaiseCm: return hands.raise_cm(order.number);
    case FaultPlay::Order::What::kKill: kill(getpid(), order.number);
  }
}

void obey_later(const Hands& hands, std::vector<FaultPlay::Order> orders) {
  if (orders.empty()) return;
  in_background("--faults", [hands, orders = std::move(orders)] {
    observe([&] {
      for (const FaultPlay::Order& order : orders) obey(hands, order);
    });
  });
}

}  // namespace weft::check
