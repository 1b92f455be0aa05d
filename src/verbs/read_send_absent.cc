// ReadSender where liburing is missing.
#include <weft/read_send.h>

namespace weft {

Result<std::unique_ptr<ReadSender>> ReadSender::create(std::shared_ptr<ProtectionDomain> /*pd*/,
                                                       const ReadSenderOptions& /*options*/) {
  return fail(Error::kUnsupported);
}

}  // namespace weft
