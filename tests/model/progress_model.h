// A lane and its shard as a few threads see them, one access of shared memory a step. The steps of
// the lane's word and of the run lock are the real ones (progress/word.h, os/kick_lock.h); what
// Shard::run(), Shard::kick_or_wake(), Lane::leave(), ShardOwner::serve_now() and
// CompletionChannel::wait() do around them is repeated here and in progress_model_passes.h.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "os/kick_lock.h"
#include "progress/word.h"
#include "progress_model_passes.h"
#include "progress_model_world.h"

namespace weft::progress::model {

class Model : Passes {
 public:
  // `stops`: passes and turns may stop early.
  Model(std::array<Role, kThreads - 1> roles, bool stops, bool ring, Mutant mutant)
      : Passes(stops, ring, mutant), roles_(roles) {}

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
        if (s.next == Next::kVoid) w.unsent = 0;  // send_now(): flushed
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
};

}  // namespace weft::progress::model
