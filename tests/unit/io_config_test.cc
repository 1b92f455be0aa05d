#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>
#include <weft/config.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>
#include <string>

#include "io/config_values.h"

extern char** environ;

namespace weft {
namespace {

using namespace std::chrono_literals;

// An environment without WEFT_ variables, and a file of its own.
class ConfigTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (char** at = environ; *at != nullptr;) {
      const std::string pair = *at;
      if (pair.starts_with("WEFT_")) {
        unsetenv(pair.substr(0, pair.find('=')).c_str());
        at = environ;
      } else {
        ++at;
      }
    }
    path_ = ::testing::TempDir() + "weft-config-test." + std::to_string(getpid());
    setenv("WEFT_CONFIG", path_.c_str(), 1);
    file("");
  }
  void TearDown() override {
    unsetenv("WEFT_CONFIG");
    for (const std::string& name : set_) unsetenv(name.c_str());
    unlink(path_.c_str());
  }
  void file(const std::string& text) { std::ofstream(path_) << text; }
  void env(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
    set_.insert(name);
  }
  Config load() {
    std::string why;
    auto config = Config::load(&why);
    EXPECT_TRUE(config) << why;
    return config.value_or(Config());
  }
  std::string refusal() {
    std::string why;
    const auto config = Config::load(&why);
    EXPECT_FALSE(config);
    if (!config) {
      EXPECT_EQ(config.error(), Error::kInvalidArgument);
    }
    return why;
  }
  std::string path_;
  std::set<std::string> set_;
};

std::string source_of(const Config& config, std::string_view key) {
  for (const auto& e : config.entries()) {
    if (e.key == key) return e.source;
  }
  return "no such key";
}
std::string value_of(const Config& config, std::string_view key) {
  for (const auto& e : config.entries()) {
    if (e.key == key) return e.value;
  }
  return "no such key";
}

bool names(const std::string& text, std::string_view what) {
  return text.find(what) != std::string::npos;
}

TEST_F(ConfigTest, EnvironmentWinsOverFileWinsOverDefault) {
  file("crc = off\nfpdu = 16k  \n# a comment\n\n  spin=1ms\n");
  env("WEFT_FPDU", "64k");
  const Config config = load();
  EXPECT_FALSE(config.crc);
  EXPECT_EQ(config.fpdu, FpduPolicy::kLarge);
  EXPECT_EQ(config.spin, 1ms);
  EXPECT_EQ(config.mpa_revision, 2);
  EXPECT_EQ(source_of(config, "crc"), path_ + ":1");
  EXPECT_EQ(source_of(config, "fpdu"), "WEFT_FPDU");
  EXPECT_EQ(source_of(config, "mpa_revision"), "default");
}

TEST_F(ConfigTest, EveryKeyCanBeSetToItsOwnValueByItsVariable) {
  const Config defaults;
  for (const auto& entry : defaults.entries()) {
    std::string variable = "WEFT_" + entry.key;
    std::transform(variable.begin(), variable.end(), variable.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    env(variable, entry.value);
    EXPECT_FALSE(entry.legal.empty());
    EXPECT_FALSE(entry.help.empty());
  }
  const Config config = load();
  for (const auto& entry : defaults.entries()) {
    EXPECT_EQ(value_of(config, entry.key), entry.value);
    EXPECT_NE(source_of(config, entry.key), "default") << entry.key;
  }
}

TEST_F(ConfigTest, ApiOverridesAndIsNamedAsSource) {
  Config config = load();
  EXPECT_TRUE(config.set("markers", "on"));
  EXPECT_TRUE(config.markers);
  EXPECT_EQ(source_of(config, "markers"), "api");
  config.crc = false;
  EXPECT_EQ(source_of(config, "crc"), "api");
}

TEST_F(ConfigTest, ASecretIsShownNowhere) {
  env("WEFT_ROCE_SECRET", "sixteen letters.");
  const Config config = load();
  EXPECT_EQ(config.roce_secret, "sixteen letters.");
  EXPECT_EQ(value_of(config, "roce_secret"), "(set)");
  EXPECT_EQ(source_of(config, "roce_secret"), "WEFT_ROCE_SECRET");
  env("WEFT_ROCE_SECRET", "fifteen letters");
  const std::string why = refusal();
  EXPECT_TRUE(names(why, "WEFT_ROCE_SECRET")) << why;
  EXPECT_TRUE(names(why, "16 to 256")) << why;
  EXPECT_FALSE(names(why, "fifteen")) << why;
}

TEST_F(ConfigTest, UnknownVariableIsNamedWithWhatIsKnown) {
  env("WEFT_CRCC", "on");
  const std::string why = refusal();
  EXPECT_TRUE(names(why, "WEFT_CRCC")) << why;
  EXPECT_TRUE(names(why, "markers")) << why;
}

TEST_F(ConfigTest, VariablesOfOtherPartsAreLeftAlone) {
  env("WEFT_SEED", "1");
  env("WEFT_JOBS", "2");
  env("WEFT_LIB_DIR", "/lib");
  env("WEFT_BIN_DIR", "/bin");
  static_cast<void>(load());
}

TEST_F(ConfigTest, BadValueIsNamedWithItsPlaceAndTheLegalOnes) {
  file("crc = on\nfpdu = huge\n");
  const std::string why = refusal();
  for (const char* part : {":2", "fpdu", "huge", "auto, mss, 16k, 64k"}) {
    EXPECT_TRUE(names(why, part)) << part << " missing in: " << why;
  }
}

TEST_F(ConfigTest, UnknownKeyInTheFileIsNamedWithItsLine) {
  file("crc = on\n\nspeed = 11\n");
  const std::string why = refusal();
  EXPECT_TRUE(names(why, ":3") && names(why, "speed")) << why;
}

TEST_F(ConfigTest, LineWithoutAnEqualsSignIsRefused) {
  file("crc on\n");
  EXPECT_TRUE(names(refusal(), "crc on"));
}

TEST_F(ConfigTest, NamedFileMustBeThere) {
  unlink(path_.c_str());
  const std::string why = refusal();
  EXPECT_TRUE(names(why, path_) && names(why, "WEFT_CONFIG")) << why;
}

TEST_F(ConfigTest, RefusedValueChangesNothing) {
  Config config;
  std::string why;
  for (const auto& [key, value] : {std::pair<const char*, const char*>{"crc", "maybe"},
                                   {"mpa_revision", "3"},
                                   {"ird", "129"},
                                   {"ord", "-1"},
                                   {"rtr", "send"},
                                   {"connect_timeout", "0"},
                                   {"connect_timeout", "5"},
                                   {"connect_timeout", "25h"},
                                   {"socket_buffer", "4x"},
                                   {"congestion", "Reno!"},
                                   {"log", "loud"}}) {
    const auto set = config.set(key, value, &why);
    ASSERT_FALSE(set) << key << " = " << value;
    EXPECT_EQ(set.error(), Error::kInvalidArgument);
    EXPECT_TRUE(names(why, key) && names(why, value)) << why;
    EXPECT_EQ(source_of(config, key), "default");
  }
  const auto unknown = config.set("nope", "1", &why);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error(), Error::kNotFound);
}

TEST_F(ConfigTest, ValuesAtTheirLimitsAreTaken) {
  Config config;
  EXPECT_TRUE(config.set("ird", "128"));
  EXPECT_TRUE(config.set("ord", "0"));
  EXPECT_TRUE(config.set("socket_buffer", "1g"));
  EXPECT_TRUE(config.set("keepalive", "0"));
  EXPECT_TRUE(config.set("connect_timeout", "24h"));
  EXPECT_EQ(config.ird, 128);
  EXPECT_EQ(config.ord, 0);
  EXPECT_EQ(config.socket_buffer_bytes, 1U << 30U);
  EXPECT_EQ(config.keepalive, 0s);
  EXPECT_EQ(config.connect_timeout, 24h);
}

TEST(ConfigValues, DurationsReadWhatTheyPrint) {
  for (const auto d : {std::chrono::nanoseconds(0), std::chrono::nanoseconds(1),
                       std::chrono::nanoseconds(50us), std::chrono::nanoseconds(1500ms),
                       std::chrono::nanoseconds(5s), std::chrono::nanoseconds(90min)}) {
    EXPECT_EQ(io::parse_duration(io::duration_text(d)), d) << io::duration_text(d);
  }
  EXPECT_EQ(io::duration_text(90min), "90min");
  EXPECT_EQ(io::duration_text(1500ms), "1500ms");
}

TEST(ConfigValues, NumbersWithRubbishAreRefused) {
  for (const char* text : {"", "s", "5 s", "5sec", "-5s", "1.5s", "99999999999999999999s"}) {
    EXPECT_FALSE(io::parse_duration(text)) << text;
  }
  for (const char* text : {"", "k", "4kb", "-1", "18446744073709551616", "18446744073709551615k"}) {
    EXPECT_FALSE(io::parse_bytes(text)) << text;
  }
  EXPECT_EQ(io::parse_bytes("4k"), 4096U);
  EXPECT_EQ(io::parse_bytes("3M"), 3U << 20U);
}

}  // namespace
}  // namespace weft
