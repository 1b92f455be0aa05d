// The sockets that the engine finds by a number: that of a descriptor, or of a connection.
//
// Any thread. What a call returns stays alive as long as the caller keeps it.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "os/lock.h"

namespace weft::exs {

class Socket;

// The sockets of this process, by descriptor.
class SocketTable {
 public:
  // The socket that had the descriptor until now, if there is one: the application has closed that
  // by itself.
  [[nodiscard]] std::shared_ptr<Socket> add(int fd, const std::shared_ptr<Socket>& socket);
  [[nodiscard]] std::shared_ptr<Socket> find(int fd) const;
  // Nothing happens if the descriptor is another socket's.
  void remove(int fd, const Socket* socket);

 private:
  mutable os::SharedMutex mutex_;
  std::vector<std::shared_ptr<Socket>> sockets_ WEFT_GUARDED_BY(mutex_);
};

// Numbers for connections, found in wr_id, in rdma_cm_id.context and in the epoll's data. They are
// not zero, and a number that is free again is the last to be given out.
class ConnectionNumbers {
 public:
  std::uint32_t add(const std::shared_ptr<Socket>& socket);
  void remove(std::uint32_t number);
  [[nodiscard]] std::shared_ptr<Socket> find(std::uint32_t number) const;

 private:
  mutable os::SharedMutex mutex_;
  std::unordered_map<std::uint32_t, std::shared_ptr<Socket>> sockets_ WEFT_GUARDED_BY(mutex_);
  std::uint32_t last_ WEFT_GUARDED_BY(mutex_) = 0;
};

}  // namespace weft::exs
