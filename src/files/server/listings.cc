#include "files/server/listings.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "files/server/open_files.h"

namespace weft::files {

Listings::Listings(Port::Area& area, bool& starved)
    : area_(area), starved_(starved), owner_(area.heap->add_owner()) {}

Listings::~Listings() { area_.heap->remove_owner(owner_); }

// A list that a client has begun stays open; the oldest makes room for more than kMostFolders, and
// its client begins anew.
int Listings::fill(const Tree& tree, const ListRequest& request, ListReply& reply,
                   std::span<std::uint8_t> room, Background& disposal) {
  Kept one{std::string(request.path.text), request.path.links, request.cursor, nullptr};
  const auto at = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& k) {
    return request.cursor != 0 && k.cursor == one.cursor && k.path == one.path &&
           k.links == one.links;
  });
  if (at != kept_.end()) {
    one.stream = std::move(at->stream);
    kept_.erase(at);
  }
  Tree::Page page{room, request.tells_failures};
  const int error = tree.list(request.path, request.cursor, page, one.stream);
  reply = {page.next, page.bytes};
  for (os::Fd& file : page.removed) dispose(disposal, std::move(file));
  if (one.stream == nullptr) return error;
  one.cursor = reply.cursor;
  kept_.push_front(std::move(one));
  if (kept_.size() > kMostFolders) kept_.pop_back();
  assert(kept_.size() <= kMostFolders);
  return error;
}

std::size_t Listings::pages() const {
  return static_cast<std::size_t>(
      std::count_if(pages_.begin(), pages_.end(), [](auto handle) { return handle != 0; }));
}

std::optional<Listings::Page> Listings::take_page() {
  const auto free = std::find(pages_.begin(), pages_.end(), BlockHeap::Handle{0});
  if (free == pages_.end()) return std::nullopt;
  const auto memory = area_.heap->allocate(owner_, kPageBytes);
  if (!memory) {
    starved_ = starved_ || pages() == 0;
    return std::nullopt;
  }
  *free = *memory;
  const std::uint64_t offset = area_.heap->extent(owner_, *memory)->offset;
  return Page{static_cast<std::size_t>(free - pages_.begin()),
              area_.octets.subspan(offset, kPageBytes)};
}

void Listings::give_back(std::size_t number) {
  assert(number < kMostPages && pages_[number] != 0);
  static_cast<void>(area_.heap->free(owner_, pages_[number]));
  pages_[number] = 0;
}

}  // namespace weft::files
