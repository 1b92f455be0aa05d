// The interface that lanes and shards need of the device they belong to.
#pragma once

#include <weft/config.h>

#include <cstdint>

#include "os/cores.h"
#include "progress/rings.h"
#include "proto/stag_table.h"

namespace weft::progress {

// Any thread. The device outlives its shards and lanes.
class ProgressHost {
 public:
  virtual ~ProgressHost() = default;
  [[nodiscard]] virtual const Config& settings() const noexcept = 0;
  // False in a child of fork(), which touches nothing.
  [[nodiscard]] virtual bool usable() const noexcept = 0;
  [[nodiscard]] virtual proto::StagTable& stags() noexcept = 0;
  [[nodiscard]] virtual Rings& rings() noexcept = 0;
  [[nodiscard]] virtual std::uint64_t ticks_per_us() const noexcept = 0;  // of os::cpu_ticks()
  [[nodiscard]] virtual unsigned cores() const noexcept = 0;              // of this process
  [[nodiscard]] virtual const os::Cores& machine_cores() const noexcept = 0;
  // A lane has come into full operation (1), or is over (-1).
  virtual void note_up(int delta) = 0;
  // A lane got no batch. If that goes on while peers do not take the data that fills the batches,
  // some of these peers lose their connections. Any lock may be held.
  virtual void note_without_batch() = 0;
};

}  // namespace weft::progress
