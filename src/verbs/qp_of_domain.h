// A queue pair as its protection domain counts it.
#pragma once

#include "verbs/pd.h"
#include "verbs/srq.h"

namespace weft::verbs {

// A queue pair as its domain, and its SRQ if it has one, count it.
class QpOfDomain {
 public:
  QpOfDomain(ProtectionDomainImpl& pd, SharedReceiveQueueImpl* srq) noexcept : pd_(pd), srq_(srq) {
    pd_.add_user();
    pd_.add_qp();
    if (srq_ != nullptr) srq_->add_user();
  }
  ~QpOfDomain() {
    if (srq_ != nullptr) srq_->drop_user();
    pd_.drop_qp();
    pd_.drop_user();
  }
  QpOfDomain(const QpOfDomain&) = delete;
  QpOfDomain& operator=(const QpOfDomain&) = delete;

 private:
  ProtectionDomainImpl& pd_;
  SharedReceiveQueueImpl* const srq_;
};

}  // namespace weft::verbs
