#include "check/catalog.h"

#include <algorithm>

namespace weft::check {
namespace {

constexpr RuleText kRules[] = {
    {"N01", "A call failed, or a request completed with an error",
     "The report names the call with its errno, or the request with its status. Where memory was "
     "refused it says which octets, by which key and why, and which region or window has or had "
     "that key. A process says it of its own requests, and of requests of the peer that it has "
     "refused. A call that found the send queue full is reported only if the program does not "
     "poll and post again.",
     "Most programs expect some calls to fail, so this is a note and not an error. Requests that "
     "are flushed after a first error are not reported one by one.",
     "Read the first note of a queue pair: later ones follow from it."},
    {"E02", "A destroyed object is used",
     "The program passes the handle of an object that it has destroyed. The report says where the "
     "object was made and where it was destroyed.",
     "rdma-core frees the memory behind the handle. The call reads or writes freed memory: it may "
     "crash, corrupt another object or seem to work.",
     "Destroy objects last, and set the handle to NULL afterwards. A common cause is an error path "
     "that cleans up twice."},
    {"E10", "Memory of a request changed before its completion",
     "The memory that a Send or a Write reads is not the same when its completion is polled as it "
     "was when the request was posted. The report names the line that posted it. The completion "
     "of an unsignaled request is that of the next signaled one. Left out are inline data, and "
     "memory to which a receive or another request may write. Of more than 16 KiB only parts are "
     "compared.",
     "Until the completion is polled, the adapter may not have read the memory: it may send the "
     "old octets, the new ones or a mix. Weft copies small messages at once, so the program works "
     "here by luck. weft run --shake SEED:2 reads late.",
     "Poll the completion before changing the memory, use another buffer, or send inline "
     "(IBV_SEND_INLINE)."},
    {"W11", "Memory of a request changed, and the peer may be the reason",
     "As E10, but a message of the peer was polled meanwhile, so the program may know that its "
     "request has arrived. Or the memory is open to Writes of the peer, which may have changed it.",
     "A message of the peer shows that it has the data, not that the adapter is done with the "
     "memory: it may have to send it again.",
     "As for E10. If the peer writes there, use separate memory for what is sent and what comes."},
    {"E12", "Memory of a request was given back before its completion",
     "The program gives memory back (free, munmap, mremap, madvise) that an outstanding request "
     "reads, or writes to, and whose region is still registered. Or the memory that a Send or a "
     "Write reads was there when the request was posted, and is not mapped when its completion is "
     "polled. Not noticed is what realloc or an allocator of the program gives back.",
     "The adapter may still use the memory. It has pinned the pages, so it sends whatever is in "
     "them, or writes into what has become the memory of something else, while the program has "
     "other pages at these addresses.",
     "Free memory when the completions of all its requests have been polled, and its region is "
     "deregistered."},
    {"E13", "Memory that the program has for itself was touched by a peer",
     "The program has said by weft_own (<weft/check.h>) that memory is its own, and not let it go "
     "by "
     "weft_release. A Write, Read or atomic of the peer comes to it, or a message goes to a "
     "receive "
     "there. The report names the line with weft_own.",
     "The peer has the key and uses it: because it was told of the buffer for an earlier request, "
     "say, that has timed out meanwhile. The program reads octets that change, or sends those of "
     "somebody else.",
     "Take a buffer back from the peer before it is used for something else: by a message that the "
     "peer answers, by deregistering its region or invalidating its key, or by closing the "
     "connection."},
    {"N14", "Outstanding requests write to the same memory",
     "The memory of a receive, a Read or an atomic overlaps with that of another one that is "
     "outstanding. This rule is off, unless --also N14 is given.",
     "Which of them comes last is not defined. Programs that want none of the data do so on "
     "purpose: perftest has one buffer for all its receives.",
     "Give each request memory of its own, if the data matters."},
    {"W15", "Two connections write to the same memory at the same time",
     "RDMA Writes of two connections go to the same octets, and neither message is complete. "
     "Messages of one FPDU, 64 KiB at most, come at once and are not seen. This rule is off, "
     "unless "
     "--also W15 is given.",
     "What is there in the end may be octets of both. Nothing orders messages of two connections.",
     "Give each connection memory of its own, or have the second one begin when the first has been "
     "answered."},
    {"E20", "The send queue would be full on an adapter",
     "The program posts more requests than the depth it asked for, before it has polled a "
     "completion at or after the oldest of them. Not reported is a program that posts until "
     "ibv_post_send fails with ENOMEM, and polls then. Where one thread posts and another one "
     "polls, the report comes when the queue pair is destroyed, and not at all if a post has "
     "failed "
     "with ENOMEM.",
     "An adapter frees the slot of a request when the program polls a completion of that request "
     "or of a later one. Neither an unsignaled request that is done nor the peer's reply frees "
     "one. ibv_post_send then fails with ENOMEM. Weft frees slots as adapters do, but rounds "
     "depths up, so the program works here by luck.",
     "Signal at least one request in each half of the queue, poll the send CQ before posting more, "
     "or ask for a deeper queue (max_send_wr)."},
    {"W21", "A request is larger than the program asked for, or there are more receives",
     "A request has more inline data or more SGEs than the program asked for when it made the "
     "queue pair (max_inline_data, max_send_sge, max_recv_sge), or more receives are posted "
     "(max_recv_wr). Not reported is a program that posts receives until ibv_post_recv fails. "
     "Receives of a shared receive queue are not counted. Under --check ibv_create_qp grants what "
     "was asked for, so a program that goes by what it was granted is not reported.",
     "Weft takes at least 128 octets inline and 4 SGEs, and rounds depths up. An adapter that "
     "grants "
     "what it was asked for refuses the request with EINVAL, or the receive with ENOMEM. weft run "
     "--shake SEED:6 does so, too.",
     "Ask for what is used, and go by what ibv_create_qp returns."},
    {"W22", "A key or a right of memory is the wrong one",
     "An SGE has an rkey in place of an lkey, or a request has an lkey in place of an rkey: under "
     "--check they are different numbers. Or, on an iWARP device, an RDMA Read writes to memory "
     "that "
     "was registered without IBV_ACCESS_REMOTE_WRITE.",
     "Weft's lkey and rkey of a region are one number, and so are those of many adapters, but not "
     "of "
     "all. On iWARP the answer to a Read is a message of the peer that writes to the memory, so "
     "adapters ask for the right; Weft does not.",
     "Use lkey in SGEs, and send rkey to the peer. Register the memory of Reads with "
     "IBV_ACCESS_REMOTE_WRITE if the device is iWARP (transport_type of struct ibv_device)."},
    {"E23", "A completion queue has overflowed",
     "A completion queue has more completions than the program asked room for when it made it "
     "(cqe). "
     "Seen when the program polls it, or destroys it. Under --check the cqe of a completion queue "
     "is "
     "what was asked for.",
     "Weft rounds up to a power of two. An adapter without room for a completion breaks the queue: "
     "IBV_EVENT_CQ_ERR, and all queue pairs that use it are in the error state. weft run --shake "
     "SEED:6 does so, too.",
     "Make the completion queue as deep as all queues together that complete to it, as far as "
     "their "
     "requests are signaled, and all their receives."},
    {"N24", "A completion queue could overflow",
     "A queue pair was made, and all queue pairs of the completion queue together have more "
     "requests "
     "(max_send_wr) and receives (max_recv_wr) than it has room for (cqe). Receives of shared "
     "receive queues, and what ibv_resize_cq changes, are not counted. This rule is off, unless "
     "--also N24 is given.",
     "Whether it overflows depends on how many are outstanding at a time, and on how soon the "
     "program polls. Programs that signal few of their requests need less room.",
     "As for E23."},
    {"E30", "An undefined field of a completion is read",
     "The program reads a field by ibv_wc_read_* that the completion does not have. With an error "
     "only wr_id, status, qp_num and vendor_err are there, and not the opcode either. With "
     "success, "
     "byte_len is there for receives, Reads and atomics, imm_data with IBV_WC_WITH_IMM or "
     "IBV_WC_WITH_INV, and src_qp, slid, sl and dlid_path_bits for datagrams. Fields of struct "
     "ibv_wc are not seen: weft run --shake SEED:4 fills those that are undefined.",
     "Adapters leave there whatever was there before, perhaps what an earlier completion had.",
     "Look at the status first. Find out what has failed by wr_id."},
    {"W40", "The program waits for an event that does not come",
     "A completion queue had completions when it was armed (ibv_req_notify_cq). The program has "
     "not polled it since, nor posted a request that completes to it, and waits in "
     "ibv_get_cq_event: the thread that armed it, while no other thread polls it, and no other "
     "queue of the channel is armed.",
     "Completions that are there when a queue is armed make no event. The program sleeps until "
     "another one comes, perhaps for ever.",
     "Arm, then poll until nothing is there, and only then wait."},
    {"N40", "Completions wait for an event that they do not make",
     "As W40, but the program waits elsewhere, in epoll say, or for another queue of the channel, "
     "or for a request that it has posted since. Reported when it takes the event of a later "
     "completion and "
     "has not polled since it armed the queue, or when the process ends and no thread has polled "
     "since.",
     "Until the later completion comes, those that were there before wait. If the peer waits for "
     "an "
     "answer to one of them, it does not come.",
     "As for W40: arm, then poll until nothing is there, and only then wait, whatever it is that "
     "waits."},
    {"E41", "A destroy call waits for acknowledgments that the program owes",
     "Events of the object were fetched and not acknowledged: by ibv_ack_cq_events, "
     "ibv_ack_async_event or rdma_ack_cm_event. The report is printed a second after the call "
     "began, "
     "while it waits.",
     "The destroy call waits until each fetched event is acknowledged. If the thread that destroys "
     "is the one that should acknowledge, it hangs.",
     "Acknowledge each event that was fetched, also on error paths, before destroying the object."},
    {"N42", "Events or completions were there at the end, and nobody has taken them",
     "The process ended, or closed the device, and asynchronous events were there that nobody has "
     "read (ibv_get_async_event): the report names them and their objects. Or it ended with "
     "completions in a completion queue that nobody has polled. Not reported are "
     "IBV_EVENT_COMM_EST, IBV_EVENT_QP_LAST_WQE_REACHED, events of destroyed objects, and a "
     "completion queue of which a queue pair is in the error state: that has flushed requests.",
     "Asynchronous events tell of what no completion tells: the port is down, an object is broken, "
     "a shared receive queue runs dry. A completion that nobody polls is a request whose end, or "
     "whose data, the program does not know.",
     "Read asynchronous events in a thread of their own, or have async_fd among the descriptors "
     "that the program waits for. Poll each completion queue until it is empty before the end, "
     "unless the program ends because it wants none of the rest."},
    {"N60", "A message waited for its receive",
     "A message of the peer that needs a receive (a Send, or a Write with immediate data) came "
     "before the program posted one. The report is made when the queue pair is destroyed or reset, "
     "or at the end: how many messages, the longest wait, and where the receive was posted that "
     "ended it.",
     "Weft holds such a message back for a while. An iWARP adapter ends the connection. One for "
     "InfiniBand or RoCE refuses the message, and the sender repeats it after a pause of up to "
     "655 ms, as often as its rnr_retry says. Programs get slow or fail by chance.",
     "Post receives before the peer can send: before rdma_accept or rdma_connect, or before the "
     "queue pair's number goes to the peer. Post the next receive before the answer that lets the "
     "peer send again."},
    {"E60", "A message found no receive",
     "A message of the peer that needs a receive was lost (UC, UD), or ended the connection after "
     "it had waited for recv_wait (iWARP, 100 ms if not configured). Or a request of this program "
     "failed because the peer had no receive, as often as rnr_retry allowed.",
     "The data is gone, or the connection is. On an adapter it happens sooner.",
     "As for N60: post receives before the peer can send, and as many as it may send at once."},
    {"W50", "A queue pair was destroyed or reset with completions due",
     "The program destroys a queue pair while a signaled request of it has no completion that was "
     "polled; or moves it to RESET, and receives of it are posted, too. Not reported is a program "
     "that has polled a completion with an error of this queue pair: it may leave out the rest.",
     "The requests are gone without a completion, and so are completions that were not polled. Who "
     "waits for them, or counts receives as posted, waits for good. An adapter may use the memory "
     "until the call returns.",
     "Poll all completions first. To end earlier, move the queue pair to the error state "
     "(rdma_disconnect does), and poll until the last request is flushed."},
    {"W51", "A destroy call failed with EBUSY and was never repeated",
     "An object was not destroyed because others depend on it, and it was still alive when the "
     "program ended. The report names the others.",
     "The object and all that it holds (pinned memory, adapter resources) leak for the life of the "
     "process. Programs that ignore the error often free the memory behind it.",
     "Destroy in the reverse order of creation, and check what destroy calls return."},
    {"N52", "An object was never destroyed",
     "It was alive when the program ended. This rule is off, unless --also N52 is given.",
     "Pinned memory and adapter resources are held for the life of the process. In a program that "
     "opens and closes connections they run out.",
     "Destroy what was made, in the reverse order, also on error paths."},
    {"E61", "A child of fork uses objects of its parent",
     "A process that comes of fork(), and has not started another program, calls a function with "
     "an "
     "object that its parent made. Not reported are ibv_close_device, ibv_destroy_comp_channel and "
     "rdma_destroy_event_channel, which give back what the child has a copy of; and children of "
     "vfork and posix_spawn. What the child makes itself is not observed.",
     "The device knows one owner. A child that destroys an object destroys that of the parent. Its "
     "memory is another one than the adapter reads and writes, and the queues that both write to "
     "are "
     "damaged. Weft refuses each such call.",
     "Open the device in the child. End children that need no device by _exit: exit runs handlers "
     "and destructors of the parent's objects."},
    {"E62", "Two threads are in what was promised to one",
     "Two threads poll a completion queue at once, or post to the same send queue, receive queue "
     "or "
     "shared receive queue. A completion queue is promised to one thread by "
     "IBV_CREATE_CQ_ATTR_SINGLE_THREADED, and all of them are by a parent domain with a thread "
     "domain (ibv_alloc_td). It is seen when it happens: threads that miss each other are not "
     "reported. Between ibv_start_poll and ibv_end_poll, and between ibv_wr_start and "
     "ibv_wr_complete, a thread is in the queue.",
     "The library takes no lock then: completions are lost or come twice, requests are "
     "overwritten, "
     "and the queue may be damaged.",
     "Make the object without the promise, have one thread use it, or take a lock around each "
     "use."},
    {"N70", "Nothing completes",
     "With --hang TIME: for so long a queue pair has got no completion, although a signaled "
     "request "
     "of it is outstanding. Or nothing has completed in the whole process, although receives are "
     "posted. The report has all queue pairs with their states, what is outstanding and what was "
     "polled last, and completion queues that were not polled. The program goes on.",
     "The program hangs, or it is idle: whoever waits for a client has receives, too. A peer under "
     "--check --hang reports its own end.",
     "Look at both ends: which one has a request outstanding, and does the other have a receive "
     "for "
     "it? If both have receives alone, each waits for a message of the other."},
};

}  // namespace

std::span<const RuleText> all_rules() { return kRules; }

const RuleText* find_rule(std::string_view id) {
  const auto* at = std::ranges::find(kRules, id, &RuleText::id);
  return at != std::end(kRules) ? at : nullptr;
}

}  // namespace weft::check
