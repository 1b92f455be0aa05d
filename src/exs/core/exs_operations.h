// The operations of one socket that wait or are under way, each list in the order of posting.
//
// With the mutex of the socket.
#pragma once

#include <cstddef>

#include "exs/core/operation.h"

namespace weft::exs {

class Operations {
 public:
  // Operations of one list that may be outstanding; more is EAGAIN.
  static constexpr std::size_t kPendingMax = 4096;

  OperationList sends;
  OperationList receives;
  OperationList accepts;
  OperationList one_sided;
  OperationList connecting;  // none or one
  OperationList shutdown;    //
  OperationList closing;     //

  // A fresh operation at the end of `list`. REQUIRES room for it.
  Operation& add(OperationList& list);
  // Its place is free, for an operation to come. `it` is in `list`.
  void drop(OperationList& list, OperationList::iterator it);
  [[nodiscard]] bool none() const;

 private:
  OperationList spare_;
};

}  // namespace weft::exs
