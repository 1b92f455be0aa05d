// How many processes hold a socket that fork() has shared. While it is more than one, the socket is
// the kernel's; the last one that has it may give it a lane, as a server that forks for each
// connection does.
//
// The counts are in memory that the processes share. A count is never too low: a holder that was
// killed, or that closed its number by a call that was not seen, is counted for ever, and so is
// everybody who may have got the number otherwise. Then the socket stays TCP.
//
// Threads: any; share() with the lock that keeps lanes from being made (lanes::before_fork).
#pragma once

#include "sockets/granted/number_table.h"

namespace weft::sockets::granted::holders {

// The fork that is about to happen gives the number one more holder, counted from now on. False:
// there is no memory for the count.
[[nodiscard]] bool share(Number& number);
// Whether fork() has shared it since it was made. A number that was not has one holder.
[[nodiscard]] bool counted(const Number& number);
// Whether this process is the only one that has it.
[[nodiscard]] bool sole(const Number& number);
// This process is about to close its number.
void drop(Number& number);
// Somebody may have it who is not counted.
void add_unknown(Number& number);
// The number was closed already, by nobody knows whom.
void forget(Number& number);
// In a child of fork(), behind numbers::in_child(): the counts of its parent stay, but those of
// numbers that are the kernel's; new ones lie elsewhere.
void in_child();

}  // namespace weft::sockets::granted::holders
