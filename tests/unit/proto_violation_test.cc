// What follows each violation, against the tables of RFC 5040 4.8, 5041 7, 5044 8, 6580 and 6581.
#include <gtest/gtest.h>

#include <sstream>

#include "proto/violation.h"
#include "wire/print.h"

namespace weft::proto {
namespace {

std::string_view name(Attach a) {
  switch (a) {
    case Attach::kNothing: return "-";
    case Attach::kDdp: return "DDP";
    case Attach::kDdpAndRead: return "DDP+Read";
  }
  return "?";
}
std::string_view name(AsyncEventType e) {
  switch (e) {
    case AsyncEventType::kQpFatal: return "fatal";
    case AsyncEventType::kQpRequestError: return "request";
    case AsyncEventType::kQpAccessError: return "access";
    default: return "?";
  }
}

TEST(Violation, EachHasTheTerminateAttachmentAndEventOfTheRegistry) {
  std::ostringstream out;
  for (int v = 1; v <= static_cast<int>(Violation::kLocalFault); ++v) {
    const Consequence& i = consequence_of(static_cast<Violation>(v));
    out << to_string(i.code) << " " << name(i.attach) << " " << name(i.event) << " " << i.name
        << "\n";
  }
  EXPECT_EQ(out.str(), R"(2/0/02 - fatal CRC mismatch
2/0/03 - fatal marker and length disagree
2/0/03 - fatal ULPDU shorter than 2 octets
2/0/06 - fatal insufficient IRD
2/0/07 - fatal no matching RTR
1/1/04 - fatal DDP version of a tagged segment
1/2/06 - fatal DDP version of an untagged segment
0/2/05 - fatal RDMAP version
0/2/06 DDP request unknown opcode
0/2/06 DDP request T bit does not fit the opcode
0/2/ff DDP request length does not fit the opcode
1/2/01 DDP request wrong queue number
1/2/03 DDP request MSN out of range
1/2/02 DDP request no receive posted
1/2/02 DDP request no slot for the request
1/2/04 DDP request invalid MO
1/2/05 DDP request message longer than the receive
1/2/02 DDP request atomic response without request
0/2/06 DDP request ack of what was not sent
1/1/00 DDP access write: invalid STag
1/1/02 DDP access write: STag not of this stream
1/1/00 DDP access write: no remote write right
1/1/03 DDP access write: TO wraps
1/1/01 DDP access write: outside the region
1/1/00 DDP access write: STag changed within a message
1/1/01 DDP access write: TO does not continue the message
0/2/06 DDP request read response without request
1/1/00 DDP access read response: wrong STag
1/1/01 DDP access read response: wrong TO
1/1/01 DDP access read response: wrong length
1/1/00 DDP access read response: the sink is gone
0/1/00 DDP+Read access read: invalid STag
0/1/03 DDP+Read access read: STag not of this stream
0/1/02 DDP+Read access read: no remote read right
0/1/04 DDP+Read access read: TO wraps
0/1/01 DDP+Read access read: outside the region
0/2/07 DDP fatal atomic: target not 8-aligned
0/2/06 DDP request atomic: unknown operation
0/2/06 DDP request atomic: target not 8-aligned (RoCE-like)
0/2/06 DDP request the queue pair serves no such requests
0/1/09 DDP request invalidate: STag not of this stream
0/2/09 DDP request invalidate: STag cannot be invalidated
1/0/00 DDP fatal receive: local memory not valid
0/0/00 - fatal send: local memory not valid
0/0/00 - fatal local fault
)");
}

TEST(Violation, EachReasonIsARegisteredCode) {
  for (int v = 1; v <= static_cast<int>(Violation::kLocalFault); ++v) {
    const Consequence& i = consequence_of(static_cast<Violation>(v));
    EXPECT_NE(describe(i.code), "unassigned") << i.name;
  }
}

TEST(ReceivedTerminate, GivesTheStatusOfTheRegistry) {
  using S = WcStatus;
  struct Row {
    TerminateCode code;
    S status;
  };
  const Row rows[] = {
      {{0, 0, 0x00}, S::kRemoteOperation},
      {{0, 0, 0x7f}, S::kRemoteOperation},
      {{0, 1, 0x00}, S::kRemoteAccess},
      {{0, 1, 0x01}, S::kRemoteAccess},
      {{0, 1, 0x02}, S::kRemoteAccess},
      {{0, 1, 0x03}, S::kRemoteAccess},
      {{0, 1, 0x04}, S::kRemoteAccess},
      {{0, 1, 0x09}, S::kRemoteInvalidRequest},
      {{0, 1, 0xff}, S::kRemoteAccess},
      {{0, 2, 0x05}, S::kRemoteInvalidRequest},
      {{0, 2, 0x06}, S::kRemoteInvalidRequest},
      {{0, 2, 0x07}, S::kRemoteOperation},
      {{0, 2, 0x08}, S::kRemoteOperation},
      {{0, 2, 0x09}, S::kRemoteInvalidRequest},
      {{0, 2, 0xff}, S::kRemoteOperation},
      {{1, 0, 0x00}, S::kRemoteOperation},
      {{1, 1, 0x00}, S::kRemoteAccess},
      {{1, 1, 0x01}, S::kRemoteAccess},
      {{1, 1, 0x02}, S::kRemoteAccess},
      {{1, 1, 0x03}, S::kRemoteAccess},
      {{1, 1, 0x04}, S::kRemoteInvalidRequest},
      {{1, 2, 0x01}, S::kRemoteInvalidRequest},
      {{1, 2, 0x03}, S::kRemoteInvalidRequest},
      {{1, 2, 0x04}, S::kRemoteInvalidRequest},
      {{1, 2, 0x05}, S::kRemoteInvalidRequest},
      {{1, 2, 0x06}, S::kRemoteInvalidRequest},
      {{1, 3, 0x01}, S::kRemoteOperation},
      {{2, 0, 0x01}, S::kFlushed},
      {{2, 0, 0x02}, S::kRemoteOperation},
      {{2, 0, 0x03}, S::kRemoteOperation},
      {{2, 0, 0x06}, S::kFlushed},
      {{2, 0, 0x07}, S::kFlushed},
      {{15, 15, 0xee}, S::kRemoteOperation},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(status_of_terminate(row.code, 0), row.status) << to_string(row.code);
  }
}

TEST(ReceivedTerminate, NoBufferMeansNoReceiveOrNoReadSlotByQueue) {
  const TerminateCode no_buffer{1, 2, 0x02};
  EXPECT_EQ(status_of_terminate(no_buffer, 0), WcStatus::kRnrRetryExceeded);
  EXPECT_EQ(status_of_terminate(no_buffer, 1), WcStatus::kRemoteInvalidRequest);
  EXPECT_EQ(status_of_terminate(no_buffer, 3), WcStatus::kRemoteInvalidRequest);
  EXPECT_EQ(status_of_terminate(no_buffer, 4), WcStatus::kRnrRetryExceeded);  // none attached
}

TEST(VendorError, ShowsLayerTypeAndCode) { EXPECT_EQ(vendor_error({1, 2, 0x05}), 0x010205U); }

}  // namespace
}  // namespace weft::proto
