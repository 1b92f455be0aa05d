// A lane and its shard as a few threads see them, one access of shared memory a step. The steps of
// the lane's word and of the run lock are the real ones (progress/word.h, os/kick_lock.h); what
// Shard::run(), Shard::kick_or_wake(), Lane::leave(), ShardOwner::serve_now() and
// CompletionChannel::wait() do around them is repeated here.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "os/kick_lock.h"
#include "progress/word.h"
#include "progress_model_world.h"

namespace weft::progress::model {

using os::KickStep;

class Model {
 public:
  // `stops`: passes and turns may stop early.
  Model(std::array<Role, kThreads - 1> roles, bool stops, bool ring, Mutant mutant)
      : roles_(roles), stops_(stops), ring_(ring), mutant_(mutant) {}

  // What each thread can do from here.
  void next(const World& w, std::vector<World>& out) const {
    if (w.wrong != Wrong::kNothing) return;
    for (std::size_t t = 0; t < kThreads; ++t) {
      World after = w;
      if (step(after, after.threads[t], t)) out.push_back(after);
    }
    if (w.stops == 0) return;
    for (std::size_t t = 0; t < kThreads; ++t) {
      World after = w;
      --after.stops;
      if (stop_early(after, after.threads[t])) out.push_back(after);
    }
  }

 private:
  [[nodiscard]] bool is(Mutant m) const { return mutant_ == m; }
  static void fault(World& w, Wrong what) {
    if (w.wrong == Wrong::kNothing) w.wrong = what;
  }

  // --- pieces ---
  void report(World& w) const {  // the shard's epoll has something more
    if (!w.callers) w.home = true;
  }
  void set_wake(World& w) const {
    w.wake = true;
    report(w);
  }
  void enter_lane(World& w) const {
    if (++w.holders > 1) fault(w, Wrong::kTwoHolders);
  }
  void touch(World& w) const {
    if (w.freed) fault(w, Wrong::kUsedAfterFree);
  }
  Step signal(Word w, Word news) const {
    if (is(Mutant::kSignalLostOnRunning) && state_of(w) == kRunning) return {w, Next::kLeft};
    return signal_step(w, news);
  }
  Step end(Word w, Word to) const {
    if (is(Mutant::kEndForgetsPosted)) w &= ~kPosted;
    if (is(Mutant::kAsleepWithNews) && to == kAsleep && (w & kPosted) == 0) {
      return {kAsleep | (w & kWanted), Next::kNothing};
    }
    if (is(Mutant::kEndLinksTwice) && (w & (kPosted | kWanted)) == 0 && (w & kInList) != 0) {
      return {with_state(w, kReady) | kInList, Next::kPush};
    }
    return end_step(w, to);
  }
  // Returns what follows.
  Next end_lane(World& w, Word to) const {
    if (!w.live) to = kClosed;
    const Word before = w.word;
    const Step s = end(before, to);
    w.word = static_cast<SmallWord>(s.word);
    if (s.next == Next::kAgain) return s.next;
    --w.holders;
    if ((before & kWanted) != 0 && !is(Mutant::kNoFutexWake)) {
      for (Thread& other : w.threads) {
        if (other.pc == kFutex) other.pc = kWork;
      }
    }
    return s.next;
  }
  // Reads all there is, or one message of several, and sends.
  void turn(World& w, Thread& me, bool stops) const {
    const Word news = me.seen & kNews;
    const bool sends_only = news != 0 && (news & ~(kRoom | kPosted)) == 0 && !w.attended &&
                            (!w.more || is(Mutant::kPostHidesRest));
    w.unsent = 0;
    me.received = false;
    if (is(Mutant::kPostHidesRest)) w.more = false;
    if (sends_only) return;
    me.received = w.unread != 0;
    me.got |= me.received;
    w.unread = static_cast<std::uint8_t>(stops ? w.unread - 1 : 0);
    w.more = stops;
    if (w.reset) close(w);
  }
  static void close(World& w) {
    w.live = w.more = w.attended = false;
    w.retired = w.any_retired = true;
    w.edge = false;  // out of the epoll
    w.unread = w.unsent = 0;
  }
  // Others of the shard's lanes, or messages, have had all that a pass, or a turn, may take.
  bool stop_early(World& w, Thread& me) const {
    if (me.pc == kUnlink && w.list != 0) {
      me.pc = kFree;
      return true;
    }
    if (me.pc != kTurn || w.unread < 2) return false;
    turn_in_pass(w, me, true);
    return true;
  }
  [[nodiscard]] static bool patient_now(const World& w) { return w.callers && w.sleepers == 0; }
  void run(Thread& me, Want want, Pc back) const {
    me.pc = kEnter;
    me.want = want;
    me.back = back;
    me.passes = 0;
    me.kicked = me.left = me.got = false;
  }
  static void tell(Thread& me, Pc back) {
    me.pc = kTell;
    me.back = back;
  }

  // --- one step; false: the thread can't go on now ---
  bool step(World& w, Thread& me, std::size_t t) const {
    switch (me.pc) {
      case kDone:
      case kFutex: return false;
      case kStart: return start(w, me, t);
      case kPost:
      case kNoteIt:
      case kSend:
      case kRing:
      case kAfterRun:
      case kAsleepNow:
      case kSleepOver:
      case kWaits:
      case kWork:
      case kBehind:
      case kGive: return own(w, me, t);
      case kEndPost:
      case kSendMore:
      case kPush:
      case kTell:
      case kLookForSleepers:
      case kWake: return end_outside(w, me);
      case kTurn:
      case kSettles:
      case kLooksAgain:
      case kEndTurn:
      case kSendAgain: return in_turn(w, me);
      default: return in_run(w, me);
    }
  }

  bool in_run(World& w, Thread& me) const {
    switch (me.pc) {
      case kEnter:
      case kNote:
      case kHarvest:
      case kReport:
      case kInbox: return in_look(w, me);
      case kUnlink:
      case kPop: return in_list(w, me);
      default: return in_leave(w, me);
    }
  }

  bool in_look(World& w, Thread& me) const {
    switch (me.pc) {
      case kEnter: {
        const bool tries = me.want == Want::kPoll || me.want == Want::kGlance;
        const KickStep s = tries ? os::kick_try_enter(w.lock) : os::kick_enter_or_kick(w.lock);
        w.lock = s.next;
        me.pc = s.done ? kNote : me.back;
        return true;
      }
      case kNote: {
        me.patient = me.want != Want::kSettle && patient_now(w);
        const bool takes = me.want != Want::kGlance || me.kicked || is(Mutant::kGlanceTakesNote);
        if (is(Mutant::kNoteBehindInbox)) {
          take_inbox(w);
        } else if (takes) {
          w.note = false;
        }
        me.pc = kHarvest;
        return true;
      }
      case kHarvest: {
        const bool polls = me.want == Want::kPoll || me.want == Want::kGlance;
        const bool due =
            me.kicked || me.want == Want::kAll || (polls && (!me.patient || !w.attended));
        me.event = false;
        if (due) {
          w.wake = false;
          me.event = w.edge;
          w.edge = false;
        }
        me.pc = me.event ? kReport : kInbox;
        return true;
      }
      case kReport: {
        touch(w);
        const Step s = signal(w.word, kIn);
        w.word = static_cast<SmallWord>(s.word);
        if (s.next == Next::kPush) ++w.list;
        me.pc = kInbox;
        return true;
      }
      case kInbox:
        if (is(Mutant::kNoteBehindInbox)) {
          w.note = false;
        } else {
          take_inbox(w);
        }
        me.pc = kUnlink;
        return true;
      default: return false;
    }
  }

  bool in_list(World& w, Thread& me) const {
    switch (me.pc) {
      case kUnlink: {
        if (w.list + w.inbox > 1) fault(w, Wrong::kLinkedTwice);
        const bool glances = me.want == Want::kGlance && !me.kicked && me.patient;
        const bool stays = glances && (w.word & kNews) == kPosted;
        me.pc = w.list == 0 || stays ? kFree : kPop;
        if (me.pc == kPop) --w.list;
        return true;
      }
      case kPop: {
        touch(w);
        const Step s = pop_step(w.word);
        me.seen = w.word;
        w.word = static_cast<SmallWord>(s.word);
        if (is(Mutant::kPopForgets) && state_of(w.word) == kRunning && s.next == Next::kLeft) {
          w.word = static_cast<SmallWord>(w.word & ~kSignaled);
        }
        me.pc = kFree;
        if (s.next == Next::kEnter) {
          enter_lane(w);
          me.pc = kTurn;
        }
        return true;
      }
      default: return false;
    }
  }

  bool in_leave(World& w, Thread& me) const {
    switch (me.pc) {
      case kFree:
        me.pc = w.any_retired ? kLookAtRetired : kWhatIsLeft;
        if (is(Mutant::kRetiredForgotten)) w.any_retired = false;
        return true;
      case kLookAtRetired:
        if (w.retired && (w.word & kInList) == 0 && state_of(w.word) != kRunning) w.freed = true;
        me.pc = kNoteRetired;
        return true;
      case kNoteRetired:
        w.any_retired = w.retired && !w.freed;
        me.pc = kWhatIsLeft;
        return true;
      case kWhatIsLeft:
        me.left = w.list + w.inbox != 0;
        me.pc = kLeave;
        return true;
      case kLeave: {
        const KickStep s = os::kick_leave(w.lock);
        if (s.done || is(Mutant::kLeaveLosesKick) || me.passes == 2) {
          me.left |= !s.done && !is(Mutant::kLeaveLosesKick);
          w.lock = KickWord::kFree;
          me.pc = me.back;
          return true;
        }
        w.lock = s.next;
        me.kicked = true;
        ++me.passes;
        me.pc = kNote;
        return true;
      }
      default: return false;
    }
  }

  static void take_inbox(World& w) {
    w.list = static_cast<std::uint8_t>(w.list + w.inbox);
    w.inbox = 0;
  }

  void turn_in_pass(World& w, Thread& me, bool stops) const {
    turn(w, me, stops);
    me.to = kReady;
    me.pc = kEndTurn;
    if (w.more && !is(Mutant::kRestSleeps)) return;
    w.attended = w.live && me.patient && me.received;
    if (w.attended) {
      w.announced = false;
      return;
    }
    me.to = kAsleep;
    if (ring_ && w.live) me.pc = kSettles;
  }

  bool in_turn(World& w, Thread& me) const {
    switch (me.pc) {
      case kTurn: turn_in_pass(w, me, false); return true;
      case kSettles:
        w.announced = true;
        me.pc = is(Mutant::kAnnounceWithoutLook) ? kEndTurn : kLooksAgain;
        return true;
      case kLooksAgain:
        if (w.unread != 0) {
          w.announced = false;
          w.attended = true;
          me.to = kReady;
        }
        me.pc = kEndTurn;
        return true;
      case kEndTurn: {
        touch(w);
        const Next next = end_lane(w, me.to);
        me.pc = next == Next::kAgain ? kSendAgain : kFree;
        if (next == Next::kPush) ++w.list;
        return true;
      }
      case kSendAgain:
        w.unsent = 0;
        me.pc = kEndTurn;
        return true;
      default: return false;
    }
  }

  bool end_outside(World& w, Thread& me) const {
    switch (me.pc) {
      case kEndPost: {
        const Next next = end_lane(w, w.more ? kReady : kAsleep);
        me.pc = next == Next::kAgain ? kSendMore : next == Next::kPush ? kPush : me.back;
        return true;
      }
      case kSendMore:
        w.unsent = 0;
        me.pc = kEndPost;
        return true;
      case kPush:
        ++w.inbox;
        tell(me, me.back);
        return true;
      case kTell: {
        const KickStep s = os::kick_if_held(w.lock);
        w.lock = s.next;
        me.pc = s.done ? me.back : kLookForSleepers;
        return true;
      }
      case kLookForSleepers: me.pc = !w.callers || w.sleepers != 0 ? kWake : me.back; return true;
      case kWake:
        if (!is(Mutant::kTellWithoutWake)) set_wake(w);
        me.pc = me.back;
        return true;
      default: return false;
    }
  }

  bool start(World& w, Thread& me, std::size_t t) const {
    const Role role = t == kThreads - 1 ? Role::kNone : roles_[t];
    switch (role) {
      case Role::kNet:
      case Role::kNetTwice:
      case Role::kBurst:
        if (me.rounds++ == (role == Role::kNetTwice ? 2 : 1))
          me.pc = kDone;
        else {
          w.unread = static_cast<std::uint8_t>(w.unread + (role == Role::kBurst ? 2 : 1));
          me.pc = kRing;
        }
        return true;
      case Role::kPoster:
      case Role::kLater:
        if (me.rounds++ == 1)
          me.pc = kDone;
        else {
          ++w.unsent;
          me.pc = kPost;
        }
        return true;
      case Role::kCaller:
      case Role::kGlancer:
        if (me.rounds++ == 2)
          me.pc = kGive;
        else
          run(me, role == Role::kCaller ? Want::kPoll : Want::kGlance, kAfterRun);
        return true;
      case Role::kResets:
        me.pc = me.rounds++ == 1 ? kDone : kRing;
        w.reset = true;
        return true;
      case Role::kSleeper:
      case Role::kTaker:
        ++w.sleepers;
        w.callers = true;
        run(me, Want::kSettle, kAfterRun);
        return true;
      case Role::kArmer: me.pc = kGive; return true;
      case Role::kControl:
      case Role::kCloser: me.pc = kWork; return true;
      case Role::kNone: break;
    }
    // The background.
    if (t != kThreads - 1) {
      me.pc = kDone;
      return true;
    }
    if (!w.home) return false;
    w.home = false;
    run(me, Want::kAll, kAfterRun);
    return true;
  }

  bool own(World& w, Thread& me, std::size_t t) const {
    const Role role = t == kThreads - 1 ? Role::kNone : roles_[t];
    switch (role) {
      case Role::kNet:
      case Role::kNetTwice:
      case Role::kBurst:
        // A peer that writes into a ring looks whether it has to wake; TCP reports each arrival.
        if (w.live && (!ring_ || w.announced)) {
          w.announced = false;
          w.edge = true;
          report(w);
        }
        me.pc = kStart;
        return true;
      case Role::kResets:
        w.edge |= w.live;
        report(w);
        me.pc = kStart;
        return true;
      case Role::kPoster: return post(w, me);
      case Role::kLater: return leave_post(w, me);
      case Role::kCaller:
      case Role::kGlancer: return call(w, me);
      case Role::kSleeper: return sleep(w, me, false);
      case Role::kTaker: return sleep(w, me, true);
      case Role::kArmer: return arm(w, me);
      case Role::kControl: return control(w, me, false);
      case Role::kCloser: return control(w, me, true);
      case Role::kNone:  // the background, behind a run
        if (w.callers && !is(Mutant::kBackgroundLeavesRest)) {
          return tell_what_is_left(w, me, kStart);
        }
        if (me.left && !w.callers) {
          run(me, Want::kAll, kAfterRun);
        } else {
          me.pc = kStart;
        }
        return true;
    }
    return false;
  }

  bool post(World& w, Thread& me) const {
    if (me.pc == kSend) {
      w.unsent = 0;
      me.pc = kEndPost;
      me.back = kStart;
      return true;
    }
    touch(w);
    const bool running = state_of(w.word) == kRunning;
    const Step s = post_step(w.word, kPosted);
    if (!is(Mutant::kPostLostOnRunning) || !running) w.word = static_cast<SmallWord>(s.word);
    me.pc = kStart;
    if (s.next == Next::kEnter) {
      enter_lane(w);
      me.pc = kSend;
    }
    return true;
  }

  // A post that is left to the next pass. If none comes, a timer makes one.
  bool leave_post(World& w, Thread& me) const {
    switch (me.pc) {
      case kPost: {
        touch(w);
        const Word before = w.word;
        const Step s = signal(before, kPosted);
        w.word = static_cast<SmallWord>(s.word);
        if (s.next == Next::kVoid) w.unsent = 0;  // kick(): flushed
        if (s.next == Next::kPush) ++w.inbox;
        const bool told = (before & kPosted) != 0 || state_of(before) == kRunning;
        me.pc = told || s.next == Next::kVoid ? kStart : kNoteIt;
        return true;
      }
      case kNoteIt:
        w.note = true;
        me.pc = kSend;
        return true;
      case kSend:
        if (w.sleepers != 0 && !is(Mutant::kLeftPostBesideSleeper)) {
          tell(me, kStart);
        } else {
          me.pc = kRing;  // the timer, some time later
        }
        return true;
      case kRing:
        if (!w.note) {
          // A pass that stopped early may have left the lane in the list for the next.
          const bool waits = !stops_ && (w.word & kPosted) != 0 && state_of(w.word) != kRunning;
          if (w.lock == KickWord::kFree && (waits || w.inbox != 0)) fault(w, Wrong::kLate);
          me.pc = kStart;
        } else if (is(Mutant::kLeftPostBesideSleeper)) {
          me.pc = kStart;  // of this mutant the timer is not there either
        } else {
          run(me, Want::kAll, kAfterRun);
        }
        return true;
      default: return tell_what_is_left(w, me, kStart);
    }
  }

  bool tell_what_is_left(World& w, Thread& me, Pc back) const {
    if (me.left && !patient_now(w) && !is(Mutant::kNoWakeOfWhatIsLeft)) set_wake(w);
    me.left = false;
    me.pc = back;
    return true;
  }

  // Polls, then stays away: after a while the background looks after the shard.
  bool call(World& w, Thread& me) const {
    if (me.pc == kAfterRun) return tell_what_is_left(w, me, me.rounds > 2 ? kDone : kStart);
    if (me.pc != kGive) return false;
    if (w.sleepers != 0) {
      me.pc = kDone;
      return true;
    }
    w.callers = false;
    w.home = w.edge || w.wake;
    run(me, Want::kAll, kAfterRun);
    return true;
  }

  bool arm(World& w, Thread& me) const {
    if (me.pc == kAfterRun) return tell_what_is_left(w, me, kDone);
    if (w.sleepers != 0) {
      me.pc = kDone;
      return true;
    }
    w.callers = false;
    w.home = w.edge || w.wake;
    run(me, Want::kSettle, kAfterRun);
    return true;
  }

  bool sleep(World& w, Thread& me, bool takes) const {
    const bool goes = takes && me.got;
    switch (me.pc) {
      case kAfterRun:
        if (goes && me.left && !is(Mutant::kTakerBeforeSleep)) set_wake(w);
        if (!goes && !me.left) {
          me.pc = kAsleepNow;
          return true;
        }
        --w.sleepers;
        me.pc = goes ? kDone : kStart;
        return true;
      case kAsleepNow:
        if (!w.edge && !w.wake) return false;
        run(me, Want::kAll, kSleepOver);
        return true;
      case kSleepOver:
        if (!is(Mutant::kTakerBehindSleep)) (void)tell_what_is_left(w, me, kStart);
        --w.sleepers;
        me.pc = goes ? kDone : kStart;
        return true;
      default: return false;
    }
  }

  bool take_lane(World& w, Thread& me, bool closes) const {
    const Step s = control_step(w.word);
    w.word = static_cast<SmallWord>(s.word);
    me.seen = w.word;
    me.pc = kWaits;
    if (s.next == Next::kWait) return true;
    enter_lane(w);
    me.seen = 0;
    me.back = kBehind;
    me.pc = kEndPost;
    if (closes && w.live) close(w);
    // A ring is read with a step more, which the transport makes (ring_wait_model_test.cc).
    if (!closes && !ring_ && w.live) turn(w, me, false);
    w.unsent = 0;
    return true;
  }

  bool control(World& w, Thread& me, bool closes) const {
    switch (me.pc) {
      case kWork: return take_lane(w, me, closes);
      case kWaits:
        me.pc = w.word == me.seen ? kFutex : kWork;  // futex_wait() compares
        return true;
      case kBehind:
        if (w.any_retired && (closes || !is(Mutant::kControlLooksAway))) {
          run(me, Want::kAll, kAfterRun);
        } else {
          me.pc = kDone;
        }
        return true;
      case kAfterRun: return tell_what_is_left(w, me, kDone);
      default: return false;
    }
  }

  const std::array<Role, kThreads - 1> roles_;
  const bool stops_, ring_;
  const Mutant mutant_;
};

}  // namespace weft::progress::model
