// The folders that a client lists: those of which it has taken some pages, and the pages that are
// on their way to it.
//
// Belongs to a session; the area of pages to the device, which outlives it. One thread, the
// server's. All pages go back with it: REQUIRES that by then the network does not touch them.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "files/protocol/data_messages.h"
#include "files/protocol/folder_stream.h"
#include "files/protocol/tree.h"
#include "files/server/background.h"
#include "files/server/server_device.h"

namespace weft::files {

class Listings {
 public:
  static constexpr std::size_t kMostFolders = 16;  // at a time
  static constexpr std::size_t kMostPages = 2;     // on their way
  static constexpr std::uint32_t kPageBytes = 64U << 10U;

  // `starved`: of the device.
  Listings(Port::Area& area, bool& starved);
  ~Listings();
  Listings(const Listings&) = delete;
  Listings& operator=(const Listings&) = delete;

  // One page of a list, in `room`.   An errno, as Tree::list()
  // `disposal` closes files whose room takes long to free.
  [[nodiscard]] int fill(const Tree& tree, const ListRequest& request, ListReply& reply,
                         std::span<std::uint8_t> room, Background& disposal);
  [[nodiscard]] std::size_t folders() const { return kept_.size(); }
  // Closes them all.
  void close() { kept_.clear(); }

  struct Page {
    std::size_t number = 0;
    std::span<std::uint8_t> octets;  // kPageBytes
  };
  // None: later. Where this client has no page, `starved` tells that the others hold too many.
  [[nodiscard]] std::optional<Page> take_page();
  void give_back(std::size_t number);
  [[nodiscard]] std::size_t pages() const;  // taken

 private:
  struct Kept {
    std::string path;
    std::uint16_t links = 0;
    std::uint64_t cursor = 0;  // of its next page
    std::unique_ptr<FolderStream> stream;
  };

  Port::Area& area_;
  bool& starved_;
  BlockHeap::Owner owner_;                             // in the area
  std::array<BlockHeap::Handle, kMostPages> pages_{};  // 0: not taken
  std::list<Kept> kept_;                               // the newest first
};

}  // namespace weft::files
