// Two threads that do the same again and again, until it is all but certain that both were at it at
// once: on one core a thread loses it in the midst of a call, too.
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

struct turns {
  void* _Atomic last;  // who came last
  atomic_int taken;    // how often that was the other one
};

// Whether `me`, who is about to do it once more, should.
static inline int take_turn(struct turns* turns, void* me) {
  enum { kEnough = 50 };
  if (atomic_exchange(&turns->last, me) != me) atomic_fetch_add(&turns->taken, 1);
  return atomic_load(&turns->taken) < kEnough;
}

// Each has something of its own as its argument.
static inline void in_two_threads(void* (*run)(void*)) {
  static char of_each[2];
  pthread_t threads[2];
  for (int i = 0; i < 2; i++)
    if (pthread_create(&threads[i], NULL, run, &of_each[i]) != 0) exit(3);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}
