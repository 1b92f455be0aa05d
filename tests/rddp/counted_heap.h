// The heap of a test program, counted: its operators new, and calloc() and aligned_alloc() as its
// own objects call them. Link with -Wl,--wrap=calloc,--wrap=aligned_alloc. One thread.
#pragma once

namespace weft::testing {

// Counts from here on. The allocation with number `fails_at` fails; 0: none does.
void begin_counting(unsigned fails_at = 0);
// How many there were.
unsigned end_counting();

}  // namespace weft::testing
