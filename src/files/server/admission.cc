#include "files/server/admission.h"

#include <cassert>
#include <cerrno>
#include <utility>

#include "files/protocol/file_xattrs.h"
#include "files/protocol/token_proof.h"

namespace weft::files {
namespace {

constexpr auto kSetUpTime = std::chrono::seconds(10);
constexpr auto kRefusalDelay = std::chrono::seconds(1);

}  // namespace

Admission::Admission(Shared& shared, Answers& answers, Clock::time_point now)
    : shared_(shared), answers_(answers), server_nonce_(random_nonce()), created_(now) {}

int Admission::admit() {
  assert(!ready() && !answers_.closed());
  if (shared_.ready >= shared_.options.max_clients) return EUSERS;
  ++shared_.ready;
  state_ = State::kReady;
  return 0;
}

void Admission::close() {
  assert(!ready() || shared_.ready > 0);
  if (ready()) --shared_.ready;
}

int Admission::greet(const HelloRequest& request, const Asked& asked) {
  if (state_ != State::kNew) return EPROTO;
  if (request.version != kVersion) {
    answers_.refuse_version(asked);
    return 0;
  }
  client_nonce_ = request.nonce;
  const bool needs_proof = !shared_.options.token.empty();
  if (needs_proof) {
    state_ = State::kProving;
  } else if (const int error = admit(); error != 0) {
    return error;
  }
  HelloReply reply;
  reply.flags = kHelloObjects | kHelloAcls | (shared_.tree.writable() ? kHelloWritable : 0U) |
                (needs_proof ? kHelloNeedsProof : 0U) |
                (shared_.options.owners ? kHelloOwners : 0U) |
                (shared_.options.owners && sees_trusted() ? kHelloTrusted : 0U);
  reply.credits = kCredits;
  reply.max_io = kMaxIoBytes;
  reply.verifier = shared_.verifier;
  reply.nonce = server_nonce_;
  answers_.send(asked, reply);
  return 0;
}

int Admission::prove_client(const ProveRequest& request, const Asked& asked) {
  if (state_ != State::kProving) return EPROTO;
  const std::string& token = shared_.options.token;
  if (!same(prove(token, Side::kClient, client_nonce_, server_nonce_), request.proof)) {
    // Guessing costs a second a time, and a new connection.
    ++shared_.counters.refused_tokens;
    refusal_ = asked;
    refuse_at_ = Clock::now() + kRefusalDelay;
    return 0;
  }
  if (const int error = admit(); error != 0) return error;
  answers_.send(asked, ProveReply{prove(token, Side::kServer, client_nonce_, server_nonce_)});
  return 0;
}

void Admission::tick(Clock::time_point now) {
  if (refuse_at_ && now >= *refuse_at_) {
    if (!refusal_) return answers_.fail();  // it had its answer a moment ago
    answers_.refuse(*std::exchange(refusal_, std::nullopt), EACCES);
    refuse_at_ = now + kRefusalDelay;
  }
  if (!ready() && now - created_ > kSetUpTime) answers_.fail();
}

}  // namespace weft::files
