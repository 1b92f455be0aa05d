#include "verbs/qp_moves.h"

namespace weft::verbs {

namespace {

using S = QpState;

// RESET is refused while the connection lives.
constexpr QpMove kConnected[] = {
    {S::kReset, S::kReset, S::kReset}, {S::kReset, S::kInit, S::kInit},
    {S::kReset, S::kError, S::kError},

    {S::kInit, S::kReset, S::kReset},  {S::kInit, S::kInit, S::kInit},
    {S::kInit, S::kRtr, S::kInit},     {S::kInit, S::kRts, S::kInit},
    {S::kInit, S::kError, S::kError},

    {S::kRtr, S::kReset, S::kReset},   {S::kRtr, S::kRtr, S::kRtr},
    {S::kRtr, S::kRts, S::kRtr},       {S::kRtr, S::kError, S::kError},

    {S::kRts, S::kReset, S::kReset},   {S::kRts, S::kRtr, S::kRts},
    {S::kRts, S::kRts, S::kRts},       {S::kRts, S::kSqd, S::kSqd},
    {S::kRts, S::kError, S::kError},

    {S::kSqd, S::kReset, S::kReset},   {S::kSqd, S::kRts, S::kRts},
    {S::kSqd, S::kSqd, S::kSqd},       {S::kSqd, S::kError, S::kError},

    {S::kError, S::kReset, S::kReset}, {S::kError, S::kError, S::kError},
};

constexpr QpMove kWired[] = {
    {S::kReset, S::kReset, S::kReset}, {S::kReset, S::kInit, S::kInit},
    {S::kReset, S::kError, S::kError},

    {S::kInit, S::kReset, S::kReset},  {S::kInit, S::kInit, S::kInit},
    {S::kInit, S::kError, S::kError},

    {S::kRtr, S::kReset, S::kReset},   {S::kRtr, S::kRtr, S::kRtr},
    {S::kRtr, S::kError, S::kError},

    {S::kRts, S::kReset, S::kReset},   {S::kRts, S::kRts, S::kRts},
    {S::kRts, S::kSqd, S::kSqd},       {S::kRts, S::kError, S::kError},

    {S::kSqd, S::kReset, S::kReset},   {S::kSqd, S::kRts, S::kRts},
    {S::kSqd, S::kSqd, S::kSqd},       {S::kSqd, S::kError, S::kError},

    {S::kError, S::kReset, S::kReset}, {S::kError, S::kError, S::kError},
};

constexpr QpMove kDatagrams[] = {
    {S::kReset, S::kReset, S::kReset}, {S::kReset, S::kInit, S::kInit},
    {S::kReset, S::kError, S::kError},

    {S::kInit, S::kReset, S::kReset},  {S::kInit, S::kInit, S::kInit},
    {S::kInit, S::kRtr, S::kRtr},      {S::kInit, S::kError, S::kError},

    {S::kRtr, S::kReset, S::kReset},   {S::kRtr, S::kRts, S::kRts},
    {S::kRtr, S::kError, S::kError},

    {S::kRts, S::kReset, S::kReset},   {S::kRts, S::kRts, S::kRts},
    {S::kRts, S::kSqd, S::kSqd},       {S::kRts, S::kError, S::kError},

    {S::kSqd, S::kReset, S::kReset},   {S::kSqd, S::kRts, S::kRts},
    {S::kSqd, S::kSqd, S::kSqd},       {S::kSqd, S::kError, S::kError},

    {S::kSqe, S::kReset, S::kReset},   {S::kSqe, S::kRts, S::kRts},
    {S::kSqe, S::kError, S::kError},

    {S::kError, S::kReset, S::kReset}, {S::kError, S::kError, S::kError},
};

}  // namespace

std::span<const QpMove> connected_moves() noexcept { return kConnected; }
std::span<const QpMove> wired_moves() noexcept { return kWired; }
std::span<const QpMove> datagram_moves() noexcept { return kDatagrams; }

}  // namespace weft::verbs
