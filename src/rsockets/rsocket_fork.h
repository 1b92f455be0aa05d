// A child of fork() closes the numbers of its parent's rsockets, and does nothing else to them.
// Kept without locks, because another thread of the parent may have held any of them.
//
// Threads: any. Numbers from kNumbersMax on are left alone.
#pragma once

namespace weft::rsockets {

inline constexpr int kNumbersMax = 1 << 20;

// The program's own numbers of rsockets.
void note_number(int fd);
// True: it had been noted, by this process or by its parent.
bool forget_number(int fd);

// Before the first call of the above in a process: `renew` is called in each child, by its only
// thread. 0, or an errno.
[[nodiscard]] int watch_forks(void (*renew)());

}  // namespace weft::rsockets
