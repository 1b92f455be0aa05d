// The films in one window, by SDL2.
#include <SDL.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "files/video/screen.h"

namespace weft::video {
namespace {

constexpr int kEventMs = 8;  // between looks at the keyboard
constexpr int kRoamMs = 1000 / 60;
constexpr int kRoamPixels = 16;
constexpr int kSeekSeconds = 5;

files::Outcome<void> sdl_failed(const char* what) {
  return files::failed(EIO, what, SDL_GetError());
}

// A film's place in the window.
struct Tile {
  SDL_Texture* texture = nullptr;
  Film film;
  SDL_Rect at{};    // what the user sees
  SDL_Rect home{};  // where it roams about
  bool has_picture = false;
};

class Window final : public Screen {
 public:
  Window() = default;
  ~Window() override {
    for (Tile& tile : tiles_) SDL_DestroyTexture(tile.texture);
    if (renderer_ != nullptr) SDL_DestroyRenderer(renderer_);
    if (window_ != nullptr) SDL_DestroyWindow(window_);
    SDL_Quit();
  }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  [[nodiscard]] files::Outcome<void> open(const std::vector<Film>& films,
                                          const WindowOptions& options);
  [[nodiscard]] files::Outcome<void> show(std::size_t film, const Player::Frame& frame) override;
  [[nodiscard]] files::Outcome<void> flip() override;
  [[nodiscard]] std::vector<Action> actions() override;
  [[nodiscard]] int interval_ms() const override { return kEventMs; }
  void status(const std::string& text) override { SDL_SetWindowTitle(window_, text.c_str()); }
  [[nodiscard]] std::uint64_t moves() const override { return moves_; }

 private:
  [[nodiscard]] std::uint32_t full_screen_flag() const {
    return options_.full_screen ? std::uint32_t{SDL_WINDOW_FULLSCREEN_DESKTOP} : 0U;
  }
  void lay_out(const std::vector<Film>& films, SDL_Point& size);
  void key(SDL_Keycode code, std::vector<Action>& out);
  void drag(const SDL_Event& event);
  void roam();

  SDL_Window* window_ = nullptr;
  SDL_Renderer* renderer_ = nullptr;
  std::vector<Tile> tiles_;         // in the order of the films
  std::vector<std::size_t> order_;  // the last one is in front
  std::size_t dragged_ = SIZE_MAX;
  WindowOptions options_;
  bool changed_ = true;
  std::uint32_t last_roam_ = 0;
  std::uint64_t moves_ = 0;
};

// In a grid, each as large as its film where the window has no size of its own.
void Window::lay_out(const std::vector<Film>& films, SDL_Point& size) {
  const auto count = static_cast<int>(films.size());
  const int columns = static_cast<int>(std::ceil(std::sqrt(static_cast<double>(count))));
  const int rows = (count + columns - 1) / columns;
  int cell_w = 1;
  int cell_h = 1;
  for (const Film& film : films) {
    cell_w = std::max(cell_w, static_cast<int>(film.width));
    cell_h = std::max(cell_h, static_cast<int>(film.height));
  }
  SDL_Rect room{0, 0, columns * cell_w, rows * cell_h};
  SDL_GetDisplayUsableBounds(0, &room);
  if (options_.width != 0) room.w = static_cast<int>(options_.width);
  if (options_.height != 0) room.h = static_cast<int>(options_.height);
  const double scale = std::min({1.0, static_cast<double>(room.w) / (columns * cell_w),
                                 static_cast<double>(room.h) / (rows * cell_h)});
  const auto scaled = [scale](double pixels) {
    return std::max(1, static_cast<int>(std::lround(pixels * scale)));
  };
  for (int i = 0; i < count; ++i) {
    Tile tile;
    tile.film = films[static_cast<std::size_t>(i)];
    tile.home = {scaled(i % columns * cell_w), scaled(i / columns * cell_h),
                 scaled(tile.film.width), scaled(tile.film.height)};
    if (i % columns == 0) tile.home.x = 0;
    if (i / columns == 0) tile.home.y = 0;
    tile.at = tile.home;
    tiles_.push_back(tile);
    order_.push_back(static_cast<std::size_t>(i));
  }
  size = {options_.width != 0 ? room.w : scaled(columns * cell_w),
          options_.height != 0 ? room.h : scaled(rows * cell_h)};
}

files::Outcome<void> Window::open(const std::vector<Film>& films, const WindowOptions& options) {
  options_ = options;
  SDL_SetHint(SDL_HINT_NO_SIGNAL_HANDLERS, "1");
  SDL_SetHint(SDL_HINT_VIDEO_X11_NET_WM_BYPASS_COMPOSITOR, "0");
  if (SDL_Init(SDL_INIT_VIDEO) != 0) {
    return files::failed(ENODEV, "no display", std::string(SDL_GetError()) + "; use --headless");
  }
  SDL_Point size{};
  lay_out(films, size);
  const std::uint32_t flags = SDL_WINDOW_RESIZABLE | full_screen_flag();
  window_ = SDL_CreateWindow("weft video", SDL_WINDOWPOS_CENTERED, SDL_WINDOWPOS_CENTERED, size.x,
                             size.y, flags);
  if (window_ == nullptr) return sdl_failed("no window");
  renderer_ = SDL_CreateRenderer(window_, -1, 0);
  if (renderer_ == nullptr) renderer_ = SDL_CreateRenderer(window_, -1, SDL_RENDERER_SOFTWARE);
  if (renderer_ == nullptr) return sdl_failed("no renderer");
  for (Tile& tile : tiles_) {
    // The octets are B, G, R, X on every machine: that is what BGRA32 names.
    const bool rgb = tile.film.format == PixelFormat::kBgra;
    tile.texture = SDL_CreateTexture(renderer_, rgb ? SDL_PIXELFORMAT_BGRA32 : SDL_PIXELFORMAT_IYUV,
                                     SDL_TEXTUREACCESS_STREAMING, static_cast<int>(tile.film.width),
                                     static_cast<int>(tile.film.height));
    if (tile.texture == nullptr) return sdl_failed("no texture");
    SDL_SetTextureBlendMode(tile.texture, SDL_BLENDMODE_NONE);
  }
  return {};
}

files::Outcome<void> Window::show(std::size_t film, const Player::Frame& frame) {
  Tile& tile = tiles_[film];
  const std::uint8_t* data = frame.pixels.data();
  const auto width = static_cast<int>(tile.film.width);
  int error = 0;
  if (tile.film.format == PixelFormat::kBgra) {
    error = SDL_UpdateTexture(tile.texture, nullptr, data, width * 4);
  } else {
    const Planes p = planes_of(tile.film);
    const auto chroma = static_cast<int>(p.chroma_width);
    error = SDL_UpdateYUVTexture(tile.texture, nullptr, data, width, data + p.u, chroma, data + p.v,
                                 chroma);
  }
  if (error != 0) return sdl_failed("cannot show a frame");
  tile.has_picture = true;
  changed_ = true;
  return {};
}

files::Outcome<void> Window::flip() {
  roam();
  if (!std::exchange(changed_, false)) return {};
  SDL_SetRenderDrawColor(renderer_, 0, 0, 0, 255);
  SDL_RenderClear(renderer_);
  for (const std::size_t i : order_) {
    const Tile& tile = tiles_[i];
    if (tile.has_picture) SDL_RenderCopy(renderer_, tile.texture, nullptr, &tile.at);
  }
  SDL_RenderPresent(renderer_);
  return {};
}

// Every picture goes round in a small circle.
void Window::roam() {
  const std::uint32_t now = SDL_GetTicks();
  if (!options_.roam || now - last_roam_ < kRoamMs) return;
  last_roam_ = now;
  ++moves_;
  const double angle = static_cast<double>(moves_) / 10;
  for (Tile& tile : tiles_) {
    tile.at.x = tile.home.x + static_cast<int>(kRoamPixels * std::cos(angle));
    tile.at.y = tile.home.y + static_cast<int>(kRoamPixels * std::sin(angle));
  }
  changed_ = true;
}

void Window::key(SDL_Keycode code, std::vector<Action>& out) {
  switch (code) {
    case SDLK_q:
    case SDLK_ESCAPE: out.push_back({Action::Kind::kQuit, 0}); break;
    case SDLK_SPACE: out.push_back({Action::Kind::kPause, 0}); break;
    case SDLK_LEFT: out.push_back({Action::Kind::kSeek, -kSeekSeconds}); break;
    case SDLK_RIGHT: out.push_back({Action::Kind::kSeek, kSeekSeconds}); break;
    case SDLK_f:
      options_.full_screen = !options_.full_screen;
      SDL_SetWindowFullscreen(window_, full_screen_flag());
      break;
    default: break;
  }
}

// The picture under the mouse comes to the front and follows it.
void Window::drag(const SDL_Event& event) {
  if (event.type == SDL_MOUSEBUTTONUP) dragged_ = SIZE_MAX;
  if (event.type == SDL_MOUSEBUTTONDOWN) {
    const SDL_Point at{event.button.x, event.button.y};
    const auto found = std::find_if(order_.rbegin(), order_.rend(), [&](std::size_t i) {
      return SDL_PointInRect(&at, &tiles_[i].at) == SDL_TRUE;
    });
    if (found == order_.rend()) return;
    dragged_ = *found;
    std::erase(order_, dragged_);
    order_.push_back(dragged_);
    changed_ = true;
  }
  if (event.type == SDL_MOUSEMOTION && dragged_ != SIZE_MAX) {
    Tile& tile = tiles_[dragged_];
    tile.at.x += event.motion.xrel;
    tile.at.y += event.motion.yrel;
    tile.home = tile.at;
    ++moves_;
    changed_ = true;
  }
}

std::vector<Action> Window::actions() {
  std::vector<Action> out;
  SDL_Event event;
  while (SDL_PollEvent(&event) != 0) {
    switch (event.type) {
      case SDL_QUIT: out.push_back({Action::Kind::kQuit, 0}); break;
      case SDL_KEYDOWN: key(event.key.keysym.sym, out); break;
      case SDL_WINDOWEVENT: changed_ = true; break;
      case SDL_MOUSEBUTTONDOWN:
      case SDL_MOUSEBUTTONUP:
      case SDL_MOUSEMOTION: drag(event); break;
      default: break;
    }
  }
  return out;
}

}  // namespace

files::Outcome<std::unique_ptr<Screen>> open_window(const std::vector<Film>& films,
                                                    const WindowOptions& options) {
  auto window = std::make_unique<Window>();
  if (auto ok = window->open(films, options); !ok) return tl::unexpected(ok.error());
  return window;
}

}  // namespace weft::video
