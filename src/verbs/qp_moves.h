// Which moves of its state a program may ask of a queue pair, and where they lead. Tables:
// docs/states.md shows them. A connection and its end move the state, too (qp_events.cc).
//
// Values.
#pragma once

#include <weft/types.h>

#include <span>

#include "base/machine.h"

namespace weft::verbs {

// `on`: the state that was asked for. A move that leads to where it began changes nothing, but for
// those to RESET and ERROR, which flush again.
using QpMove = Arrow<QpState, QpState>;

// That a connection moves to RTR and RTS: asking for these is part of every verbs program.
[[nodiscard]] std::span<const QpMove> connected_moves() noexcept;
// That the program wires: the attributes that it gives move it to RTR and RTS, see wire() and
// start_sending().
[[nodiscard]] std::span<const QpMove> wired_moves() noexcept;
[[nodiscard]] std::span<const QpMove> datagram_moves() noexcept;

}  // namespace weft::verbs
