// The calls of rdma_cm that depend on the state of an id: in which states each is legal, the state
// that it brings, and what becomes of that when it fails. A call in any other state is EINVAL and
// changes nothing.
#pragma once

#include <initializer_list>

#include "rdmacm/cm.h"

namespace weft::rdmacm {

class States {
 public:
  constexpr States(std::initializer_list<IdState> list) {
    for (const IdState state : list) bits_ |= bit(state);
  }
  [[nodiscard]] constexpr bool has(IdState state) const { return (bits_ & bit(state)) != 0; }

 private:
  static constexpr std::uint32_t bit(IdState state) { return 1U << static_cast<unsigned>(state); }
  std::uint32_t bits_ = 0;
};

struct Operation {
  States from;
  IdState during;  // until the call returns; an event of the engine may move it on meanwhile
  IdState after;   // when it succeeded
};

// clang-format off
namespace op {
using enum IdState;
inline constexpr Operation kBindAddr     {{kIdle},                  kBusy,          kBound};
inline constexpr Operation kResolveAddr  {{kIdle, kBound},          kBusy,          kAddrResolved};
inline constexpr Operation kResolveRoute {{kAddrResolved},          kBusy,          kRouteResolved};
inline constexpr Operation kListen       {{kIdle, kBound},          kBusy,          kListening};
inline constexpr Operation kConnect      {{kRouteResolved},         kConnecting,    kConnecting};
inline constexpr Operation kAccept       {{kRequested},             kAccepting,     kAccepting};
inline constexpr Operation kReject       {{kRequested},             kDown,          kDown};
inline constexpr Operation kDisconnect   {{kConnected, kAccepting}, kDisconnecting, kDisconnecting};
inline constexpr Operation kEstablish    {{kConnected},             kConnected,     kConnected};
}  // namespace op
// clang-format on

// One call in progress: the id, owned, and what belongs to it at the start. Unless done() is called
// the destructor takes the state back.
class Call {
 public:
  // Looks the id up, checks its state and moves it. The mutex must not be held.
  Call(const Operation& operation, const rdma_cm_id* handle);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // 0, or EINVAL: no such id, or not in this state.
  [[nodiscard]] int refused() const { return id_ != nullptr ? 0 : EINVAL; }
  [[nodiscard]] Id& id() const { return *id_; }
  [[nodiscard]] const std::shared_ptr<Id>& shared_id() const { return id_; }
  [[nodiscard]] IdState before() const { return before_; }
  [[nodiscard]] const std::shared_ptr<Connection>& connection() const { return connection_; }
  // That of the start, until forget_listener().
  [[nodiscard]] const std::shared_ptr<Listener>& listener() const { return listener_; }
  void forget_listener() { listener_.reset(); }

  // The call succeeded.
  void done() { finish(operation_.after); }
  // It ends in another state than the table says.
  void finish(IdState state);

 private:
  const Operation& operation_;
  std::shared_ptr<Id> id_;
  IdState before_{};
  bool open_ = false;
  std::shared_ptr<Connection> connection_;
  std::shared_ptr<Listener> listener_;
};

}  // namespace weft::rdmacm
