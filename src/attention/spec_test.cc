#include "attention/spec.h"

#include <gtest/gtest.h>

namespace longheads {
namespace {

std::string Written(const AttentionSpec& spec) {
  std::string text = spec.frequencies;
  for (const SpecOption& option : spec.frequency_options) text += ":" + option.name + "=" + option.value;
  text += "+" + spec.policy;
  for (const SpecOption& option : spec.policy_options) text += "," + option.name + "=" + option.value;
  return text;
}

TEST(ParseSpec, ReadsMethodsAndOptions) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"auto", "none+auto"},
      {"full", "none+full"},
      {"none", "none+full"},
      {"none+longheads", "none+longheads"},
      {"longheads,chunk=256,window=4096", "none+longheads,chunk=256,window=4096"},
      {" longheads , chunk = 256 ", "none+longheads,chunk=256"},
      {"longheads,compat=own-key+begin,begin=window", "none+longheads,compat=own-key+begin,begin=window"},
      {"none+longheads,compat=own-key+begin", "none+longheads,compat=own-key+begin"},
      {"longheads,reps=kv,select=kv", "none+longheads,reps=kv,select=kv"},
      {"yarn", "yarn+full"},
      {"yarn:factor=4", "yarn:factor=4+full"},
      {"yarn:factor=4:beta_fast=16+full", "yarn:factor=4:beta_fast=16+full"},
      {"ntk:factor=2+longheads,begin=16384", "ntk:factor=2+longheads,begin=16384"},
      {" pi : factor = 2.5 + longheads , compat=own-key+begin",
       "pi:factor=2.5+longheads,compat=own-key+begin"},
  };
  for (const auto& [text, expected] : cases) {
    const Result<AttentionSpec> spec = ParseSpec(text);
    ASSERT_TRUE(spec) << text << ": " << spec.error().message;
    EXPECT_EQ(Written(*spec), expected);
  }
}

TEST(ParseSpec, RefusesWithTheNearestName) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"longhead", "did you mean 'longheads'"},
      {"LongHeads", "did you mean 'longheads'"},
      {"ful", "did you mean 'full'"},
      {"aut,chunk=4", "did you mean 'auto'"},
      {"", "unknown attention method ''"},
      {",", "unknown attention method ''"},
      {"chunk=4", "unknown attention method 'chunk=4'"},
      {"none+", "unknown attention method ''"},
      {"+full", "unknown frequency schedule ''"},
      {"nne+full", "did you mean 'none'"},
      {"longheads+full", "unknown frequency schedule 'longheads'"},
      {"longheads,chunk", "'chunk' in the attention method 'longheads,chunk' is not option=value"},
      {"longheads,chunk=", "not option=value"},
      {"longheads,=4", "not option=value"},
      {"longheads,", "not option=value"},
      {"longheads,,chunk=4", "not option=value"},
      {"longheads,chunk=4,chunk=4", "sets 'chunk' twice"},
      {"longheads,chunk=4, chunk=8", "sets 'chunk' twice"},
      {"none:factor+full", "not option=value"},
      {"yarm:factor=4", "did you mean 'yarn'"},
      {"yarm:factor=4+full", "did you mean 'yarn'"},
      {"yarm", "did you mean 'yarn'"},
      {"yarn+ful", "did you mean 'full'"},
      {"yarn+yarm", "unknown attention method 'yarm'. ("},
      {"yarn,factor=4", "'yarn' is a frequency schedule: its options follow a colon"},
      {"full+yarn", "unknown frequency schedule 'full'"},
      {"longheads:chunk=4", "options of 'longheads' follow a comma"},
      {"yarn:factor=4:factor=8", "sets 'factor' twice"},
      {"yarn:factor", "not option=value"},
      {"none:", "not option=value"},
  };
  for (const auto& [text, expected] : cases) {
    const Result<AttentionSpec> spec = ParseSpec(text);
    ASSERT_FALSE(spec) << text;
    EXPECT_EQ(spec.error().kind, ErrorKind::kInvalidInput);
    EXPECT_NE(spec.error().message.find(expected), std::string::npos) << text << ": " << spec.error().message;
  }
}

TEST(SplitSpecs, SeparatesAtSemicolonsAndBeforeNames) {
  using Specs = std::vector<std::string>;
  EXPECT_EQ(SplitSpecs("full"), Specs{"full"});
  EXPECT_EQ(SplitSpecs("full;longheads"), (Specs{"full", "longheads"}));
  EXPECT_EQ(SplitSpecs("full,longheads,chunk=128;auto"), (Specs{"full", "longheads,chunk=128", "auto"}));
  EXPECT_EQ(SplitSpecs("longheads,chunk=256,window=4096"), Specs{"longheads,chunk=256,window=4096"});
  EXPECT_EQ(SplitSpecs("longheads,compat=own-key+begin,full"),
            (Specs{"longheads,compat=own-key+begin", "full"}));
  EXPECT_EQ(SplitSpecs("full,yarn:factor=4+full,ntk:factor=2+longheads,begin=16384"),
            (Specs{"full", "yarn:factor=4+full", "ntk:factor=2+longheads,begin=16384"}));
  EXPECT_EQ(SplitSpecs("yarn:factor=4:beta_fast=16+longheads,begin=8192,pi,full"),
            (Specs{"yarn:factor=4:beta_fast=16+longheads,begin=8192", "pi", "full"}));
  EXPECT_EQ(SplitSpecs(" full ; ; longheads , chunk=4 "), (Specs{"full", "longheads,chunk=4"}));
  EXPECT_EQ(SplitSpecs(""), Specs{});
}

TEST(DidYouMean, NamesTheOneWithTheFewestEditsIfFewerThanHalf) {
  EXPECT_EQ(DidYouMean("longhedas", {"auto", "full", "longheads"}), ": did you mean 'longheads'?");
  EXPECT_EQ(DidYouMean("foo", {"auto", "full", "longheads"}), ".");
  EXPECT_EQ(DidYouMean("x", {}), ".");
}

}  // namespace
}  // namespace longheads
