// The device that `weft run --like` imitates: its limits, and what it refuses
// (src/like/device_profile.h). Nothing of this runs where `likeness` is null.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "ibverbs/objects.h"
#include "like/device_profile.h"

namespace weft::ibverbs {

// Set when the library is loaded, from WEFT_LIKE; null: Weft is itself.
extern constinit const like::Profile* likeness;

// 0, or the errno with which that device refuses this. The first time each is said on stderr: a
// program that is told EINVAL need not say by which of its wishes.
[[nodiscard]] int refused(like::Act what) noexcept;
// The same where more than a limit is asked for. A device that has such a limit and takes more all
// the same is not imitated in that.
[[nodiscard]] int refused(like::Act beyond, like::Number limit, std::uint64_t asked) noexcept;
// One object more of a kind, of which there are `count` already.
[[nodiscard]] int refused_one_more(like::Number limit, std::size_t count) noexcept;

[[nodiscard]] int refused_qp(const ibv_qp_init_attr_ex& attr) noexcept;
[[nodiscard]] int refused_srq(const ibv_srq_attr& attr) noexcept;
// A Read into so many SGEs.
[[nodiscard]] int refused_read(std::size_t sges) noexcept;
// Rights of a region: IBV_ACCESS_...
[[nodiscard]] int refused_access(unsigned flags) noexcept;
[[nodiscard]] int refused_window(ibv_mw_type type) noexcept;

// Lowers what Weft says to what that device says.
void imitate(ibv_device_attr& attr) noexcept;
void imitate(ibv_port_attr& attr) noexcept;
// The sizes that a queue pair was granted that asked for `asked`.
void imitate(ibv_qp_cap& granted, const ibv_qp_cap& asked) noexcept;
[[nodiscard]] std::uint32_t imitate(like::Size size, std::uint32_t asked,
                                    std::uint32_t granted) noexcept;
// Puts a function that refuses requests into the table of a context.
void imitate(ibv_context_ops& ops) noexcept;

}  // namespace weft::ibverbs
