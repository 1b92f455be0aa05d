#include "files/video_options.h"

#include "weft/common/arguments.h"
#include "weft/common/message.h"

namespace weft::tv {
namespace {

cli::Arguments* add(cli::Arguments& app, Command& c, Command::Kind kind, const char* name,
                    const char* what) {
  cli::Arguments* sub = app.add_subcommand(name, what);
  sub->callback([&c, kind] { c.kind = kind; });
  return sub;
}

void add_token(cli::Arguments& app, Command& c) {
  app.add_option("--token-file", c.token_file,
                 "Secret that server and viewers share, in a file that only you can read")
      .type_name("FILE");
}

void add_serve(cli::Arguments& app, Command& c) {
  cli::Arguments* sub =
      add(app, c, Command::Kind::kServe, "serve", "Serve films to weft video show");
  sub->add_option(
         "FILE", c.serve.files,
         "Films: YUV4MPEG2 (.y4m), or raw frames named NAME.WIDTHxHEIGHT@RATE.bgra. Others "
         "are converted by ffmpeg first, to NAME.y4m in a temporary folder")
      .type_name("FILE")
      .required();
  data::add_listen_options(*sub, c.listen);
  add_token(*sub, c);
  sub->add_flag("--open", c.serve.open_access,
                "Serve viewers on other machines without a token. Everybody who reaches the port "
                "can see the films");
  sub->add_flag("--direct", c.serve.direct, "Read past the page cache (O_DIRECT)");
  sub->add_option("--max-clients", c.serve.max_clients, "Refuse more films at once")
      .type_name("N")
      .between(1U, 1U << 20U)
      .show_default();
  sub->add_flag("!--quiet", c.serve.log, "Log no connections");
  sub->add_option("--announce-fd", c.announce_fd, "Write the port to this descriptor").group("");
  sub->footer("Ends on SIGINT and SIGTERM. weft serve serves films too, with whole folders.");
}

void add_show(cli::Arguments& app, Command& c) {
  cli::Arguments* sub =
      add(app, c, Command::Kind::kShow, "show", "Show films of one or more servers");
  ShowCommand& s = c.show;
  sub->add_option("FILM", s.films,
                  "HOST:FILE, HOST:PORT:FILE or weft://HOST:PORT/FILE; several are shown at once")
      .type_name("HOST[:PORT]:FILE")
      .required();
  sub->add_flag("--loop", s.play.loop, "Begin again at the end");
  sub->add_option("--start", s.play.first, "Frame to begin with").type_name("N").show_default();
  sub->add_option("--frames", s.play.frames, "End after so many frames; 0: all")
      .type_name("N")
      .show_default();
  sub->add_option("--buffers", s.play.slots, "Frames of memory for each film")
      .type_name("N")
      .between(2U, files::kMaxSlots)
      .show_default();
  sub->add_flag("--fast", s.fast, "As fast as the frames come, and drop none");
  sub->add_flag("--full-screen", s.window.full_screen, "Without a border, over the whole screen");
  sub->add_option("--width", s.window.width, "Of the window, in pixels. Default: as the films are")
      .type_name("N");
  sub->add_option("--height", s.window.height, "Of the window").type_name("N");
  sub->add_flag("--roam", s.window.roam,
                "Move the pictures 60 times a second, to see that this costs the servers nothing");
  sub->add_flag("--hold", s.hold, "Keep the last frames on the screen until you close the window");
  sub->add_flag("--headless", s.is_headless, "Show nothing");
  sub->add_flag("--check", s.headless.check,
                "With --headless: compare each frame, bit for bit, with that of weft video make");
  sub->add_option("--dump", s.headless.dump_prefix,
                  "With --headless: write the pixels of film N to PREFIXN")
      .type_name("PREFIX");
  sub->add_flag("--json", s.json, "Print the statistics as JSON");
  add_token(*sub, c);
  data::add_port_option(*sub, c.port);
  sub->footer(
      "Keys: space pauses, left and right go 5 s back and forth, f is full screen, q ends. The "
      "mouse moves a film. Exit codes: 0 all films were shown, or q ended them, 1 something "
      "failed, 2 "
      "wrong usage, 130 and 143 SIGINT and SIGTERM ended them.");
}

void add_make(cli::Arguments& app, Command& c) {
  cli::Arguments* sub = add(app, c, Command::Kind::kMake, "make",
                            "Make a test film: color bars with the number and time of each frame");
  sub->add_option("FILE", c.make.file,
                  "Ends in .y4m (4:2:0 chroma), or in .bgra: then --size and --rate become part of "
                  "the name, where it does not have them")
      .type_name("FILE")
      .required();
  sub->add_option("--size", c.make.size, "Pixels").type_name("WIDTHxHEIGHT").show_default();
  sub->add_option("--rate", c.make.rate, "Frames a second; 30000:1001 is a fraction")
      .type_name("RATE")
      .show_default();
  sub->add_option("--frames", c.make.frames, "Frames").type_name("N").show_default();
}

}  // namespace

bool parse(int argc, char** argv, Command& c, int& exit_code) {
  cli::Arguments app{"Films over RDMA: a server pushes frames into the viewer's memory.",
                     "weft video"};
  app.require_subcommand(1, 1);
  add_serve(app, c);
  add_show(app, c);
  add_make(app, c);
  const auto end = app.parse(argc, argv);
  if (end) exit_code = *end;
  return !end;
}

}  // namespace weft::tv
