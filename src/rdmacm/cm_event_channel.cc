// Event channels: create, destroy, get an event, acknowledge it.

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "os/lock.h"
#include "rdmacm/cm.h"
#include "rdmacm/deliver.h"
#include "rdmacm/forward.h"

namespace weft::rdmacm {

namespace {

// Its memory stays when it goes, as that of an id.
std::shared_ptr<Channel> new_channel() {
  if (ibverbs::observer == nullptr) return std::make_shared<Channel>();
  void* const place = ::operator new(sizeof(Channel));
  return {new (place) Channel, [](Channel* channel) { channel->~Channel(); }};
}

}  // namespace

std::shared_ptr<Channel> make_channel() {
  const auto channel = new_channel();
  if (!channel->queue.valid()) return nullptr;  // errno says why
  channel->pub.fd = channel->queue.fd();
  const os::MutexLock lock(state().mutex);
  state().channels.emplace(&channel->pub, channel);
  return channel;
}

namespace {

// How long a call for an event of a channel that is gone takes to fail.
constexpr std::chrono::milliseconds kGraceAfterDestroy{100};

// The octet that an acknowledged event is filled with (`weft run --shake`).
constexpr std::uint8_t kOver = 0x5a;

// False: nobody has the id any more.
bool finish_if_owned(Event& event) {
  const os::MutexLock lock(state().mutex);
  if (!event.owner->alive) return false;
  finish(event);
  return true;
}

// Behind an empty queue: what the caller has polled so far is not looked after any more.
void tell_that_caller_sleeps() {
  {
    const os::MutexLock lock(state().mutex);
    const auto has_device = [](const auto& entry) {
      return entry.second->connection != nullptr || entry.second->listener != nullptr;
    };
    if (std::ranges::none_of(state().ids, has_device)) return;  // one need not be opened for this
  }
  if (const auto engine = device()) engine->caller_sleeps();
}

// The next event that still has an owner. Null with errno. One whose owner is gone, or for which
// there was no room, is freed here without the mutex: a request is refused thereby.
EventPtr take_event(Channel& channel) {
  for (;;) {
    std::optional<EventPtr> taken =
        channel.queue.pop([](const EventPtr&) {}, tell_that_caller_sleeps);
    if (!taken) return nullptr;
    EventPtr event = std::move(*taken);
    if (!prepare(*event) || !finish_if_owned(*event)) continue;
    if (is_request(*event)) event->raw.connection->request_taken();
    if (weft::ibverbs::observer != nullptr) inject(*event);
    return event;
  }
}

}  // namespace
}  // namespace weft::rdmacm

using namespace weft::rdmacm;

extern "C" {

rdma_event_channel* rdma_create_event_channel(void) {
  WEFT_CM_FORWARD(rdma_create_event_channel)
  WEFT_MAY_FAIL(rdma_create_event_channel, fail_null);
  return or_null([&]() -> rdma_event_channel* {
    const auto channel = make_channel();
    if (channel == nullptr) return nullptr;
    if (weft::ibverbs::observer != nullptr) {
      weft::check::Made made;
      made.handle = &channel->pub;
      made.kind = weft::check::Kind::kCmChannel;
      weft::ibverbs::observer->made(made);
    }
    return &channel->pub;
  });
}

void rdma_destroy_event_channel(rdma_event_channel* handle) {
  WEFT_CM_FORWARD(rdma_destroy_event_channel, handle)
  std::shared_ptr<Channel> last;  // goes outside the mutex; ids still on it keep it alive
  const weft::os::MutexLock lock(state().mutex);
  const auto at = state().channels.find(handle);
  if (at == state().channels.end()) return weft::ibverbs::observe_not_live(handle);
  if (weft::ibverbs::observer != nullptr) weft::ibverbs::observer->destroyed(handle);
  last = std::move(at->second);
  state().channels.erase(at);
}

int rdma_get_cm_event(rdma_event_channel* handle, rdma_cm_event** event) {
  WEFT_CM_FORWARD(rdma_get_cm_event, handle, event)
  WEFT_MAY_FAIL(rdma_get_cm_event, fail_minus);
  return or_minus([&]() -> int {
    release_dropped();
    if (handle == nullptr || event == nullptr) return fail_minus(EINVAL);
    std::shared_ptr<Channel> channel;
    {
      const weft::os::MutexLock lock(state().mutex);
      channel = live_channel(handle);
    }
    if (channel == nullptr) {
      // Programs with a thread for events end like this: the main thread acknowledges nothing more,
      // destroys the channel and returns from main(), while that thread comes back for another
      // event and would end the program with an error first. It sleeps as it would have in the
      // kernel.
      std::this_thread::sleep_for(kGraceAfterDestroy);
      return fail_minus(EINVAL);
    }
    EventPtr taken = take_event(*channel);
    if (taken == nullptr) return -1;
    rdma_cm_id* listener = taken->pub.listen_id;
    // The child of a synchronous listener is synchronous too.
    if (listener != nullptr && reinterpret_cast<Id*>(listener)->sync) {
      if (rdma_migrate_id(taken->pub.id, nullptr) != 0) {
        const int error = errno;
        rdma_destroy_id(taken->pub.id);
        rdma_ack_cm_event(&taken.release()->pub);
        return fail_minus(error);
      }
    }
    *event = &taken.release()->pub;
    return 0;
  });
}

int rdma_ack_cm_event(rdma_cm_event* handle) {
  WEFT_CM_FORWARD(rdma_ack_cm_event, handle)
  EventPtr event;  // freed outside the mutex
  {
    const weft::os::MutexLock lock(state().mutex);
    if (state().events.erase(handle) == 0) return fail_minus(EINVAL);
    event.reset(reinterpret_cast<Event*>(handle));
    ++event->owner->events_acked;
  }
  state().acked.notify_all();
  if (weft_ibv_fills_what_ends()) {
    std::ranges::fill(event->raw.private_data, kOver);
    std::memset(handle, kOver, sizeof *handle);
  }
  return 0;
}

}  // extern "C"
