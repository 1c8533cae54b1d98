// What an experiment is made of: a list of samples, each of which gives one score on a model. Most ask a
// question and judge the answer; others measure something else. Which samples run, on which methods, and what
// is kept of them is task_run.h's.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"
#include "engine/engine.h"
#include "eval/prompt.h"
#include "eval/prompt_reader.h"

namespace longheads {

using Json = nlohmann::ordered_json;
struct TaskRecord;

// Known without a model; what it says is made when it is its turn.
struct Sample {
  std::string id;  // says all that makes the sample, beside Task::Setup; no two of a task have the same
  // Samples that share a text stand one after the other: it is read once, and intervals count it once. Empty:
  // alone.
  std::string document = {};
  // What reports lay out by, as scalars, the columns of tables first: {"length": 4096, "depth": 0.5}.
  Json cell = Json::object();
  int64_t tokens = 0;   // about so many are to be read; 0: not known. For the time that is left; not kept
  int64_t longest = 0;  // of the texts that make these up, the longest; 0: they are one text
  int64_t number = 0;   // by which the task finds what it needs to make it; not kept
};

// How a score reads. "share" is 0 .. 1, right or wrong and between; others are any numbers.
struct MeasureName {
  std::string name;            // "accuracy", "recall", "kl"
  std::string unit = "share";  // "share", "nats", "s"
};

struct SampleOutcome {
  double score = 0;
  Json cell = Json::object();    // joins the sample's: what shows once it is made
  Json values = Json::object();  // what else was found, by name
  std::string answer = {};
  Json references = {};  // what the answer was judged by
  int64_t tokens = 0;    // of the prompt, as counted
  int64_t shared = 0;    // of these, read earlier for another sample
  int64_t generated = 0;
};

// What a sample is measured on.
struct TaskContext {
  Engine& engine;
  PromptReader& reader;
  PromptForm form;
  // Loads the model anew with another method: what a method is compared with.
  std::function<Result<std::unique_ptr<Engine>>(const std::string& attention)> load = {};
  EngineOptions engine_options = {};  // how the model was loaded, its attention aside
  const CancelToken* cancel = nullptr;
  PromptReader::Start on_prefill = {};
};

class Task {
 public:
  virtual ~Task() = default;

  virtual std::string name() const = 0;  // of the command and of the files
  virtual MeasureName measure() const = 0;
  // Names of those `values` that tables show beside the score.
  virtual std::vector<std::string> shown() const { return {}; }
  // All that decides on samples' words and scores beside their ids and the model: options, a text's hash, and
  // "version", which is raised when the same options come to mean another thing.
  virtual Json Setup() const = 0;
  // The methods it is about; empty: any, as the user says.
  virtual std::vector<std::string> methods() const { return {}; }
  // Whether it measures time and memory: then it matters how much of a text is kept in memory, which changes
  // no bit of a result, and each sample has an engine that has done nothing before.
  virtual bool measures_cost() const { return false; }
  // Whether the prompt's form (plain, chat) bears on it.
  virtual bool has_form() const { return true; }
  virtual const std::vector<Sample>& samples() const = 0;

  // What is wrong with the options for this model, before hours of work.
  virtual Status Check(const Engine& engine, PromptForm form, const CancelToken* cancel) const = 0;
  // An Error is the sample's failure, with its reason; kCancelled ends the run.
  virtual Result<SampleOutcome> Measure(const TaskContext& context, const Sample& sample) = 0;
  // Writes what else belongs into the directory of the results, such as files in an official format.
  virtual Status Export(const std::string& /*directory*/, std::span<const TaskRecord> /*records*/) const {
    return {};
  }
};

// A sample as a question.
struct Question {
  PromptText text;
  bool plain = false;  // without the chat template, whatever the form
  int64_t max_new = 32;
  // An answer ends before the first of these that comes after anything but blanks.
  std::vector<std::string> stops = {};
  Json references = {};
};

struct Score {
  double value = 0;
  Json values = Json::object();
};

// Asks, takes the greedy answer, and judges it.
class QuestionTask : public Task {
 public:
  // Given the engine, a text can be made to a length in its tokens. `form` is what the prompt will have.
  virtual Result<Question> Ask(const Engine& engine, PromptForm form, const Sample& sample,
                               const CancelToken* cancel) const = 0;
  virtual Score Judge(const Question& question, const std::string& answer) const = 0;

  // Asks the shortest of the samples whose length is known.
  Status Check(const Engine& engine, PromptForm form, const CancelToken* cancel) const override;
  Result<SampleOutcome> Measure(const TaskContext& context, const Sample& sample) override;
};

// The greedy answer to a prompt that was read: up to a stop, not beyond max_new tokens.
struct GreedyAnswer {
  std::string text;
  int64_t n_tokens = 0;
};
Result<GreedyAnswer> AnswerGreedily(Engine& engine, PromptReader::Prompted& prompted,
                                    const Question& question, const CancelToken* cancel);

// Where an answer ends: the place of the first stop that something but blanks stands before, or its size.
std::size_t AnswerEnd(const std::string& answer, const std::vector<std::string>& stops);

}  // namespace longheads
