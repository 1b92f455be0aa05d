#include "weft/selftest/selftest_run.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

namespace weft::selftest {
namespace {

using Clock = std::chrono::steady_clock;

// A peer that takes no connection any more: the checks that are left would say nothing else.
constexpr int kGivesUpAfter = 3;

// A connection beside those of the checks, which must not notice them.
class Witness {
 public:
  explicit Witness(const Context& context) : context_(context) { renew(); }

  // What is wrong with it; it is replaced then.
  std::string check() {
    if (!session_) return "";
    try {
      session_->expect_alive();
      return "";
    } catch (const raw::Failure& why) {
      renew();
      return why.what();
    }
  }

 private:
  void renew() {
    session_.reset();
    if (!context_.many) return;
    try {
      session_.emplace(context_.open());
    } catch (const raw::Failure&) {  // the checks will say so themselves
    }
  }

  const Context& context_;
  std::optional<Session> session_;
};

Verdict run_one(Context& context, const Check& check) {
  if (check.needs == Needs::kServer && !context.served) {
    return skipped("needs `weft selftest --serve` at the other end");
  }
  // Some checks open a dozen connections; a peer that is slow at each of them has said enough.
  context.give_up = Clock::now() + 4 * context.patience;
  Verdict verdict;
  try {
    verdict = check.run(context);
  } catch (const raw::Failure& why) {
    verdict = wrong(why.what());
  }
  context.give_up = Clock::time_point::max();
  return verdict;
}

bool takes_connections(const Context& context) {
  try {
    context.open().expect_alive();
    return true;
  } catch (const raw::Failure&) {
    return false;
  }
}

std::optional<Session> try_profile(Context& context, const Profile& profile, std::string* why) {
  try {
    Session s = context.open(profile);
    s.expect_alive();
    context.profile = profile;
    return s;
  } catch (const raw::Failure& failure) {
    if (why->empty()) *why = failure.what();
    return std::nullopt;
  }
}

}  // namespace

bool selects(const Selection& selection, const Check& check) {
  if (selection.gentle && check.harsh) return false;
  if (selection.only.empty()) return true;
  for (const std::string& prefix : selection.only) {
    if (check.id.starts_with(prefix)) return true;
  }
  return false;
}

std::optional<std::string> meet(Context& context) {
  const Profile profiles[] = {
      {.revision = 2, .enhanced = true, .peer_to_peer = true},
      {.revision = 2, .enhanced = true, .peer_to_peer = false},
      {.revision = 1, .enhanced = false, .peer_to_peer = false},
  };
  std::string why;
  for (const Profile& profile : profiles) {
    const std::optional<Session> first = try_profile(context, profile, &why);
    if (!first) continue;
    context.served = first->offer.has_value();
    context.agrees_to_rtr =
        first->reply.has(raw::kS) && (first->reply.ird_word() & raw::kBitA) != 0;
    try {
      context.open().expect_alive();
      context.many = true;
    } catch (const raw::Failure&) {
    }
    return std::nullopt;
  }
  return why;
}

std::vector<Outcome> run_checks(Context& context, const Checks& checks, const Selection& selection,
                                const std::function<void(const Outcome&)>& watch) {
  std::vector<Outcome> outcomes;
  Witness witness(context);
  int lost = 0;
  bool told = false;  // that the peer is gone: the rest is only counted
  for (const Check& check : checks) {
    if (!selects(selection, check)) continue;
    Outcome outcome{.check = &check};
    const auto began = Clock::now();
    if (lost >= kGivesUpAfter) {
      outcome.verdict = skipped("the peer takes no connection any more; the rest is left out");
    } else {
      outcome.verdict = run_one(context, check);
      if (const std::string harm = witness.check(); !harm.empty()) {
        outcome.verdict = wrong("another connection suffers: " + harm);
      }
      const bool gone = outcome.verdict.grade == Grade::kWrong && !takes_connections(context);
      lost = gone ? lost + 1 : 0;
    }
    outcome.seconds = std::chrono::duration<double>(Clock::now() - began).count();
    if (!told) watch(outcome);
    told = outcome.verdict.grade == Grade::kSkipped && lost >= kGivesUpAfter;
    outcomes.push_back(std::move(outcome));
  }
  return outcomes;
}

bool all_well(const std::vector<Outcome>& outcomes) {
  for (const Outcome& o : outcomes) {
    if (o.verdict.grade == Grade::kWrong) return false;
  }
  return true;
}

Checks all_checks() {
  Checks checks;
  add_startup_checks(checks);
  add_negotiation_checks(checks);
  add_framing_checks(checks);
  add_header_checks(checks);
  add_message_checks(checks);
  add_extension_checks(checks);
  add_requester_checks(checks);
  add_ending_checks(checks);
  add_memory_checks(checks);  // last: its last one looks for damage
  return checks;
}

}  // namespace weft::selftest
