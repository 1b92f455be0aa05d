// Passes over a shard and turns of its lane, one access of shared memory a step: the part of
// progress_model.h that is the same for every thread.
#pragma once

#include <cstdint>

#include "os/kick_lock.h"
#include "progress/word.h"
#include "progress_model_world.h"

namespace weft::progress::model {

using os::KickStep;

class Passes {
 public:
  // `stops`: passes and turns may stop early.
  Passes(bool stops, bool ring, Mutant mutant) : stops_(stops), ring_(ring), mutant_(mutant) {}

 protected:
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

  bool tell_what_is_left(World& w, Thread& me, Pc back) const {
    if (me.left && !patient_now(w) && !is(Mutant::kNoWakeOfWhatIsLeft)) set_wake(w);
    me.left = false;
    me.pc = back;
    return true;
  }

  const bool stops_, ring_;
  const Mutant mutant_;
};

}  // namespace weft::progress::model
