// The device: owns the STag table, limits, counters and the progress engine.
//
// One Device covers all addresses of the machine. A process usually opens one. After fork() the
// child must open its own: calls on the parent's objects fail there with kBadState or, where there
// is no error to return, do nothing (a poll finds nothing). They touch nothing.
#pragma once

#include <weft/completion.h>
#include <weft/config.h>
#include <weft/connection.h>
#include <weft/counters.h>
#include <weft/memory.h>
#include <weft/queue_pair.h>
#include <weft/result.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#pragma GCC visibility push(default)
namespace weft {

struct AsyncEvent {
  AsyncEventType type{};
  // The object it is about; null where it does not apply or the object is gone.
  std::weak_ptr<QueuePair> qp;
  std::weak_ptr<CompletionQueue> cq;
  std::weak_ptr<SharedReceiveQueue> srq;
  // Stable identity for adapters, valid even when the object is gone. Alive while a sink is told.
  const void* object = nullptr;
};

class Device : public std::enable_shared_from_this<Device> {
 public:
  virtual ~Device() = default;  // last: every object holds its device

  //   kInvalidArgument  bad configuration (Config::load says which)
  //   kSystem           no descriptors or memory
  [[nodiscard]] static Result<std::shared_ptr<Device>> open(const Config& config);

  [[nodiscard]] virtual const Config& config() const = 0;
  [[nodiscard]] virtual std::string_view name() const = 0;  // "weft0"

  [[nodiscard]] virtual Result<std::shared_ptr<ProtectionDomain>> create_pd() = 0;
  [[nodiscard]] virtual Result<std::shared_ptr<CompletionChannel>> create_channel() = 0;
  [[nodiscard]] virtual Result<std::shared_ptr<CompletionQueue>> create_cq(const CqOptions&) = 0;

  // Connections and listeners; events go to `channel` (not null).
  [[nodiscard]] virtual Result<std::shared_ptr<Connection>> create_connection(
      std::shared_ptr<EventChannel> channel) = 0;
  [[nodiscard]] virtual Result<std::shared_ptr<Listener>> create_listener(
      std::shared_ptr<EventChannel> channel) = 0;

  // Asynchronous events: a pollable fd, and the oldest event (as EventChannel::next).
  [[nodiscard]] virtual int async_fd() const = 0;
  [[nodiscard]] virtual Result<AsyncEvent> next_async_event(
      std::optional<std::chrono::nanoseconds> timeout) = 0;
  // For adapters: from now on each event goes to `sink` instead of the queue, those queued first,
  // on the thread that raises it. The sink must not wait nor call back into the engine; nor take a
  // share of the object, since to let go of the last one is a call. Null: the queue.
  virtual void set_async_sink(std::function<void(const AsyncEvent&)> sink) = 0;

  // For adapters: a thread of the program goes to sleep, and is not woken by completions. CQs that
  // nobody polls from now on are served by the background at once, not after some milliseconds.
  virtual void caller_sleeps() = 0;

  // For tests: numbers of objects, and keys of regions, that are given back are the next to be
  // used. Before the first object is made.
  virtual void reuse_at_once() = 0;

  [[nodiscard]] virtual Counters counters() const = 0;  // all QPs, present and past

  // Objects that still use the device.
  [[nodiscard]] virtual std::size_t users() const = 0;
};

[[nodiscard]] std::string_view version();  // "0.1.0"
// How CRC32C of large runs is computed here: "isa-l", "sse4.2", "armv8" or "table".
[[nodiscard]] std::string_view crc_method();

}  // namespace weft
#pragma GCC visibility pop
