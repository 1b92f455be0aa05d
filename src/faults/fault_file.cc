#include "faults/fault_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "faults/fallible_calls.h"
#include "faults/fault_line.h"
#include "os/errno_name.h"

namespace weft::faults {

namespace {

struct Named {
  std::string_view name;
  int value;
};

// As <infiniband/verbs.h> numbers them. IBV_WC_WR_FLUSH_ERR is not there: it is what becomes of all
// requests behind one that fails.
constexpr std::array<std::string_view, 22> kStatuses = {
    "SUCCESS",          "LOC_LEN_ERR",       "LOC_QP_OP_ERR",     "LOC_EEC_OP_ERR",
    "LOC_PROT_ERR",     "WR_FLUSH_ERR",      "MW_BIND_ERR",       "BAD_RESP_ERR",
    "LOC_ACCESS_ERR",   "REM_INV_REQ_ERR",   "REM_ACCESS_ERR",    "REM_OP_ERR",
    "RETRY_EXC_ERR",    "RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR",  "REM_INV_RD_REQ_ERR",
    "REM_ABORT_ERR",    "INV_EECN_ERR",      "INV_EEC_STATE_ERR", "FATAL_ERR",
    "RESP_TIMEOUT_ERR", "GENERAL_ERR"};
constexpr std::array<std::string_view, 8> kNotOfQueuePairs = {"SUCCESS",
                                                              "LOC_EEC_OP_ERR",
                                                              "WR_FLUSH_ERR",
                                                              "LOC_RDD_VIOL_ERR",
                                                              "REM_INV_RD_REQ_ERR",
                                                              "INV_EECN_ERR",
                                                              "INV_EEC_STATE_ERR",
                                                              "?"};

constexpr int kRejected = 8;               // rdma_cm's
constexpr std::size_t kMostPrivate = 150;  // of a reject of InfiniBand, with the quotes

// Their first argument is one.
constexpr std::array<std::string_view, 5> kCallsOfQps = {
    "ibv_post_send", "ibv_post_recv", "ibv_wr_complete", "ibv_modify_qp", "ibv_query_qp"};
constexpr std::array<std::string_view, 3> kCallsWithOctets = {"ibv_post_send", "ibv_post_recv",
                                                              "ibv_wr_complete"};

constexpr auto kSignals = std::to_array<Named>({{"SIGKILL", SIGKILL},
                                                {"SIGTERM", SIGTERM},
                                                {"SIGINT", SIGINT},
                                                {"SIGSTOP", SIGSTOP},
                                                {"SIGABRT", SIGABRT},
                                                {"SIGSEGV", SIGSEGV}});

// As <infiniband/verbs.h> numbers them.
struct NamedEvent {
  std::string_view name;
  int value;
  Object object;
};
constexpr auto kEvents = std::to_array<NamedEvent>({{"CQ_ERR", 0, Object::kCq},
                                                    {"QP_FATAL", 1, Object::kQp},
                                                    {"QP_REQ_ERR", 2, Object::kQp},
                                                    {"QP_ACCESS_ERR", 3, Object::kQp},
                                                    {"COMM_EST", 4, Object::kQp},
                                                    {"SQ_DRAINED", 5, Object::kQp},
                                                    {"PATH_MIG", 6, Object::kQp},
                                                    {"PATH_MIG_ERR", 7, Object::kQp},
                                                    {"DEVICE_FATAL", 8, Object::kDevice},
                                                    {"PORT_ACTIVE", 9, Object::kDevice},
                                                    {"PORT_ERR", 10, Object::kDevice},
                                                    {"LID_CHANGE", 11, Object::kDevice},
                                                    {"PKEY_CHANGE", 12, Object::kDevice},
                                                    {"SM_CHANGE", 13, Object::kDevice},
                                                    {"SRQ_ERR", 14, Object::kSrq},
                                                    {"SRQ_LIMIT_REACHED", 15, Object::kSrq},
                                                    {"QP_LAST_WQE_REACHED", 16, Object::kQp},
                                                    {"CLIENT_REREGISTER", 17, Object::kDevice},
                                                    {"GID_CHANGE", 18, Object::kDevice}});

// As <rdma/rdma_cma.h> numbers them, with their usual errors.
struct CmFailure {
  std::string_view name;
  int value;
  int error;
};
constexpr auto kCmFailures = std::to_array<CmFailure>({{"ADDR_ERROR", 1, ETIMEDOUT},
                                                       {"ROUTE_ERROR", 3, ETIMEDOUT},
                                                       {"CONNECT_ERROR", 6, ECONNRESET},
                                                       {"UNREACHABLE", 7, ETIMEDOUT},
                                                       {"REJECTED", 8, ECONNREFUSED},
                                                       {"DEVICE_REMOVAL", kDeviceRemoval, 0},
                                                       {"ADDR_CHANGE", kAddrChange, 0},
                                                       {"TIMEWAIT_EXIT", kTimewaitExit, 0}});

template <std::size_t N>
std::optional<int> value_of(const std::array<Named, N>& names, std::string_view word) {
  const auto* const found =
      std::ranges::find_if(names, [&](const Named& one) { return one.name == word; });
  if (found == names.end()) return std::nullopt;
  return found->value;
}

template <class One, std::size_t N>
std::string list_of(const std::array<One, N>& names) {
  std::string out;
  for (const One& one : names) out += (out.empty() ? "" : ", ") + std::string(one.name);
  return out;
}

std::optional<int> status_of(std::string_view word) {
  const auto* const found = std::ranges::find(kStatuses, word);
  if (found == kStatuses.end()) return std::nullopt;
  if (std::ranges::find(kNotOfQueuePairs, word) != kNotOfQueuePairs.end()) return std::nullopt;
  return static_cast<int>(found - kStatuses.begin());
}

std::string list_of_statuses() {
  std::string out;
  for (const std::string_view name : kStatuses) {
    if (status_of(name)) out += (out.empty() ? "" : ", ") + std::string(name);
  }
  return out;
}

Done read_place(Line& line, FaultRule& rule) {
  while (line.take_if("in")) {
    if (line.take_if("rank")) {
      const auto rank = number_of<std::uint64_t>(line.word());
      if (!rank) return line.wrong("write the number of a rank");
      rule.rank = std::to_string(*rank);
      line.take();
    } else if (line.take_if("program")) {
      if (line.at_end()) return line.wrong("write a pattern for the command line, as *client*");
      rule.program = line.take();
    } else if (line.take_if("host")) {
      if (line.at_end()) return line.wrong("write the name of a host");
      rule.host = line.take();
    } else {
      return line.wrong("write `in rank N`, `in host NAME` or `in program PATTERN`");
    }
  }
  return {};
}

Done read_call(Line& line, FaultRule& rule) {
  std::string call(line.word());
  if (!call.starts_with("ibv_") && !call.starts_with("rdma_")) call.insert(0, "ibv_");
  if (error_of(call) == 0)
    return line.wrong("no such call can fail; `weft faults calls` lists them");
  rule.call = call;
  rule.error = error_of(call);
  line.take();
  Line ahead = line;  // `from 3rd` is something else
  if (ahead.take_if("from") && ahead.take_if("lib")) {
    line = ahead;
    if (line.at_end()) return line.wrong("write a pattern for the name of a library, as libmpi*");
    rule.library = line.take();
  }
  if (auto done = read_qp(line, rule); !done || !rule.qp) return done;
  if (std::ranges::find(kCallsOfQps, rule.call) == kCallsOfQps.end()) {
    return tl::unexpected(std::to_string(line.number()) + ": on qp: " + rule.call +
                          " is no call about one; that are post_send, post_recv, wr_complete, "
                          "modify_qp and query_qp");
  }
  return {};
}

Done read_completion(Line& line, FaultRule& rule) {
  rule.effect = line.word() == "send" ? Effect::kCompleteSend : Effect::kCompleteReceive;
  if (!line.take_if("send") && !line.take_if("receive")) return line.wrong("write send or receive");
  rule.error = 0;
  return read_qp(line, rule);
}

// `on qp N`, where there is one.
Done read_object(Line& line, FaultRule& rule, Object wanted) {
  constexpr std::array<std::string_view, 3> kNames = {"qp", "cq", "srq"};
  rule.object = wanted;
  if (wanted == Object::kDevice || !line.take_if("on")) return {};
  const std::string_view name = kNames[static_cast<std::size_t>(wanted)];
  if (!line.take_if(name)) return line.wrong("it is an event of a " + std::string(name));
  if (wanted == Object::kQp) return read_number(line, rule.place, rule.peer);
  const auto place = number_of<std::uint64_t>(line.word());
  if (!place) return line.wrong("write its number: 0 is the first that is made");
  rule.place = *place;
  line.take();
  return {};
}

Done read_event(Line& line, FaultRule& rule) {
  rule.effect = Effect::kEvent;
  const auto* const event =
      std::ranges::find_if(kEvents, [&](const NamedEvent& one) { return one.name == line.word(); });
  if (event == kEvents.end()) return line.wrong("write an event: " + list_of(kEvents));
  rule.number = event->value;
  line.take();
  return read_object(line, rule, event->object);
}

Done read_cm(Line& line, FaultRule& rule) {
  rule.effect = Effect::kCm;
  const auto* const failure = std::ranges::find_if(
      kCmFailures, [&](const CmFailure& one) { return one.name == line.word(); });
  if (failure == kCmFailures.end()) return line.wrong("write an event: " + list_of(kCmFailures));
  rule.number = failure->value;
  rule.error = failure->error;
  if (rule.number == kDeviceRemoval || rule.number == kAddrChange) rule.effect = Effect::kCmOfAll;
  line.take();
  return {};
}

Done read_kill(Line& line, FaultRule& rule) {
  rule.effect = Effect::kKill;
  const auto signal = value_of(kSignals, line.word());
  if (!signal) return line.wrong("write a signal: " + list_of(kSignals));
  rule.number = *signal;
  line.take();
  return {};
}

Done read_effect(Line& line, FaultRule& rule) {
  if (line.take_if("fail")) return read_call(line, rule);
  if (line.take_if("complete")) return read_completion(line, rule);
  if (line.take_if("event")) return read_event(line, rule);
  if (line.take_if("cm")) return read_cm(line, rule);
  if (line.take_if("kill")) return read_kill(line, rule);
  if (line.word() == "link" || line.word() == "octet") return read_link(line, rule);
  if (line.take_if("receive")) return read_receive(line, rule);
  if (!line.take_if("disconnect"))
    return line.wrong("write fail, complete, event, cm, link, octet, receive, disconnect or kill");
  rule.effect = Effect::kDisconnect;
  return read_object(line, rule, Object::kQp);
}

// The other requests of a list, and the data.
Done read_rest(Line& line, FaultRule& rule) {
  if (rule.effect == Effect::kFail && line.word() == "bad_wr") {
    if (!rule.call.starts_with("ibv_post_"))
      return line.wrong("of post_send, post_recv and post_srq_recv only: others post no list");
    line.take();
    if (!line.take_if("second")) return line.wrong("write second");
    rule.second = true;
  }
  const bool completes =
      rule.effect == Effect::kCompleteSend || rule.effect == Effect::kCompleteReceive;
  if (completes && !line.take_if("delivered")) {
    if (rule.effect == Effect::kCompleteReceive && line.word() == "lost")
      return line.wrong("only a send request is lost: what a receive has got has arrived");
    rule.lost = line.take_if("lost");
  }
  if (rule.effect == Effect::kCm && line.word() == "private") {
    if (rule.number != kRejected) return line.wrong("only REJECTED brings private data");
    line.take();
    const std::string_view word = line.word();
    if (word.size() < 2 || word.front() != '"' || word.back() != '"' || word.size() > kMostPrivate)
      return line.wrong("write the data in quotes, without blanks, at most 148 of them");
    rule.private_data = word.substr(1, word.size() - 2);
    line.take();
  }
  return {};
}

Done read_error(Line& line, FaultRule& rule) {
  if (comes_by_itself(rule.effect) || rule.effect == Effect::kReceiveLate) return {};
  const bool call = rule.effect == Effect::kFail || rule.effect == Effect::kCm;
  if (rule.number == kTimewaitExit && rule.effect == Effect::kCm) return {};  // it has none
  if (!line.take_if("with")) {
    if (call) return read_rest(line, rule);  // its usual error
    return line.wrong("write with what it completes: with RETRY_EXC_ERR");
  }
  std::string_view word = line.word();
  if (word.ends_with(',')) word.remove_suffix(1);
  const auto error = call ? os::errno_by_name(word) : status_of(word);
  if (!error) {
    return line.wrong(call ? "write an errno, as ENOMEM or ECONNREFUSED"
                           : "write a status: " + list_of_statuses());
  }
  rule.error = *error;
  line.take();
  return read_rest(line, rule);
}

// `for 500ms`: a port is up again then, by a rule of its own. Nothing: it is for good.
tl::expected<std::optional<FaultRule>, std::string> read_end(Line& line, const FaultRule& rule) {
  constexpr int kPortActive = 9, kPortError = 10;
  if (!line.take_if("for")) return std::nullopt;
  if (rule.effect != Effect::kEvent || rule.number != kPortError ||
      rule.when.how != When::How::kAfterTime)
    return line.wrong("only `event PORT_ERR after 2s` is for a time");
  const auto time = time_of(line.word());
  if (!time) return line.wrong("write a time as 2s, 10ms or 50us");
  line.take();
  FaultRule end = rule;
  end.number = kPortActive;
  end.when.time += *time;
  return end;
}

// Often one.
tl::expected<std::vector<FaultRule>, std::string> read_rules(Line& line) {
  FaultRule rule;
  rule.line = line.number();
  for (Done (*const read)(Line&, FaultRule&) : {read_place, read_effect}) {
    if (auto done = read(line, rule); !done) return tl::unexpected(done.error());
  }
  if (rule.effect != Effect::kLink) {
    if (auto done = read_when(line, rule); !done) return tl::unexpected(done.error());
    if (auto done = read_error(line, rule); !done) return tl::unexpected(done.error());
  }
  auto end = read_end(line, rule);
  if (!end) return tl::unexpected(end.error());
  if (line.take_if("as")) {
    const char first = line.at_end() ? '0' : line.word().front();
    if ((first >= '0' && first <= '9') || first == '.' || first == '-')
      return line.wrong("write a name; it begins with no number");
    rule.name = line.take();
  }
  if (!line.at_end()) return line.wrong("the rule is complete; each has a line of its own");
  std::vector<FaultRule> out{std::move(rule)};
  if (*end) out.push_back(std::move(**end));
  return out;
}

const FaultRule* named(const FaultFile& file, const std::string& name) {
  const auto found =
      std::ranges::find_if(file.rules, [&](const FaultRule& rule) { return rule.name == name; });
  return found != file.rules.end() ? &*found : nullptr;
}

// Each `after NAME` has a rule of this name, which does not wait for it in turn.
Done check_names(const FaultFile& file) {
  for (const FaultRule& rule : file.rules) {
    const std::string at = std::to_string(rule.line) + ": ";
    if (!rule.name.empty() && named(file, rule.name) != &rule)
      return tl::unexpected(at + "as " + rule.name + ": another rule has this name");
    std::size_t steps = 0;
    for (const FaultRule* one = &rule; one->when.how == When::How::kAfterRule; ++steps) {
      const FaultRule* const before = named(file, one->when.rule);
      if (before == nullptr) {
        return tl::unexpected(std::to_string(one->line) + ": after " + one->when.rule +
                              ": no rule has this name; `as NAME` at its end names a rule");
      }
      if (steps > file.rules.size())
        return tl::unexpected(at + "after " + rule.when.rule + ": the rules wait for each other");
      one = before;
    }
  }
  return {};
}

}  // namespace

bool has_octets(std::string_view call) {
  return std::ranges::find(kCallsWithOctets, call) != kCallsWithOctets.end();
}

std::string_view status_name(int status) {
  const auto at = static_cast<std::size_t>(status);
  return status >= 0 && at < kStatuses.size() ? kStatuses[at] : "?";
}

std::string_view event_name(int event) {
  const auto* const found =
      std::ranges::find_if(kEvents, [&](const NamedEvent& one) { return one.value == event; });
  return found != kEvents.end() ? found->name : "?";
}

std::string_view cm_event_name(int event) {
  const auto* const found =
      std::ranges::find_if(kCmFailures, [&](const CmFailure& one) { return one.value == event; });
  return found != kCmFailures.end() ? found->name : "?";
}

tl::expected<FaultFile, std::string> parse_faults(std::string_view text) {
  FaultFile out;
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    const auto lines = std::ranges::count(text.substr(0, nul), '\n');
    return tl::unexpected(std::to_string(lines + 1) + ": an octet of 0; this is no file of text");
  }
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view whole = text.substr(0, end);
    Line line(whole.substr(0, std::min(whole.find('#'), whole.size())), number);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.at_end()) continue;
    if (line.take_if("seed")) {
      const auto seed = number_of<std::uint64_t>(line.word());
      if (!seed) return line.wrong("write a number");
      out.seed = *seed;
      line.take();
      if (!line.at_end()) return line.wrong("the seed is complete");
      continue;
    }
    if (line.take_if("shake")) {
      if (!out.shake.empty()) return line.wrong("there is one in another line already");
      if (line.at_end()) return line.wrong("write a seed, as for weft run --shake");
      out.shake = line.take();
      out.shake_line = number;
      if (!line.at_end()) return line.wrong("the line is complete");
      continue;
    }
    auto rules = read_rules(line);
    if (!rules) return tl::unexpected(rules.error());
    for (FaultRule& rule : *rules) out.rules.push_back(std::move(rule));
  }
  if (auto done = check_names(out); !done) return tl::unexpected(done.error());
  return out;
}

}  // namespace weft::faults
