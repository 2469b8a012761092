#include "structure/prose.h"

#include <cctype>
#include <regex>
#include <sstream>

namespace structure {
namespace {

struct Phrase {
  std::regex pattern;
  std::string remedy;
};

std::regex words(const std::string& pattern) {
  return std::regex(pattern, std::regex::ECMAScript | std::regex::icase | std::regex::optimize);
}

/// What is counted, and for what: "4 bytes an element", "one line a step".
const char* const kDistributive =
    R"(\b(bytes?|elements|lines?|numbers?|times|tokens|gathers|all-gathers?|reductions?|norms?|)"
    R"(collectives|micro-steps|tensors|threads|questions|folder|file|entry|target|operations|)"
    R"(seconds|ms|gib|parameters?|vector|value|one|two|[0-9]+) an? )"
    R"((step|rank|micro-step|element|parameter|unit|task|token|row|flat parameter|kind|layer|)"
    R"(folder|call|second|group|reduction|backward|iteration|test case|student|line|)"
    R"(micro-batch|module)\b)"
    R"((?=[.,;:)\]"|=]| and | with | than | under | in | of |: |$))";

const std::vector<Phrase>& phrases() {
  static const std::vector<Phrase> table = {
      {words(kDistributive), "write 'per', or 'each'"},
      {words(R"(\b(whoever|somebody)\b)"), "name the actor, or speak to the reader"},
      {words(R"((^|[.] )who (forgets|waits|reads|wants|calls|asks)\b)"), "write 'if you …'"},
      {words(R"(\b(is|are|was|were|be|been) given up\b|\bgiven up (after|since)\b|)"
             R"(\bgiv(e|es|ing) (its|the|their) \w+ up\b)"),
       "memory is freed; a unit is resharded"},
      {words(R"(\b(has|gets its|get their) bytes\b|\bbytes go away\b|\blets? go of\b)"),
       "memory is allocated, held or freed"},
      {words(R"(\b(hears?|heard) (of|nothing|in)\b|\bis heard\b)"), "code is called, or notified"},
      {words(R"(, of which\b|\w of which (the|one|a|all|more|some)\b)"), "begin a new sentence"},
      {words(R"(\bthere(of|by|in|upon)\b|\bwhere(of|by|upon)\b|\bhence(forth)?\b)"),
       "use a plain word"},
      {words(R"(\bone's own\b)"), "write 'its own' or 'your own'"},
      {words(R"(\b(it|them), too\b)"), "write 'also' before the verb"},
      {words(R"(\b(that are|is never) there\b|\bare there at once\b)"),
       "memory is allocated, held or freed; a unit is unsharded"},
      {words(R"(\bany more\b)"), "write 'no longer', or 'no …'"},
      {words(R"(\b(scheduler|prefetcher|reducer|tracker|optimizer) (is|was) told\b)"),
       "code is called, or notified"},
      {words(R"(\bfor ever\b)"), "write 'forever'"},
      {words(R"(\bat the (most|least)\b)"), "write 'at most' or 'at least'"},
      {words(R"([,)] but for (the|units|a)\b)"), "write 'except'"},
      {words(R"(\bthe other way round\b)"), "say which comes first"},
      {words(R"(\b(is|are|was) said\b)"), "say who says it: 'reports', 'sets', 'names'"},
      {words(R"((^|[.;:] )(had|were) (you|it|they|the)\b)"), "write 'if'"},
  };
  return table;
}

bool ends_sentence(const std::string& word) {
  const std::size_t last = word.find_last_not_of(")*_\"'");
  return last != std::string::npos && (word[last] == '.' || word[last] == '!' || word[last] == '?');
}

bool is_word(const std::string& word) {
  for (const char c : word) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) return true;
  }
  return false;
}

}  // namespace

Violations stiff_phrases(const std::vector<File>& files) {
  Violations found;
  for (const File& file : files) {
    for (const Passage& passage : passages_of(file)) {
      for (const Phrase& phrase : phrases()) {
        std::smatch match;
        if (std::regex_search(passage.text, match, phrase.pattern)) {
          found.push_back(at(file, passage.line_index) + ": '" + match.str() +
                          "': " + phrase.remedy);
        }
      }
    }
  }
  return found;
}

Violations long_sentences(const std::vector<File>& files, std::size_t limit) {
  Violations found;
  for (const File& file : files) {
    for (const Passage& passage : passages_of(file)) {
      std::string sentence;
      std::size_t count = 0;
      const auto end = [&] {
        if (count > limit) {
          found.push_back(at(file, passage.line_index) + ": " + std::to_string(count) +
                          " words, at most " + std::to_string(limit) + ": '" +
                          sentence.substr(0, 50) + "…'");
        }
        sentence.clear();
        count = 0;
      };
      std::istringstream in(passage.text);
      for (std::string word; in >> word;) {
        sentence += (sentence.empty() ? "" : " ") + word;
        count += is_word(word) ? 1 : 0;
        if (ends_sentence(word)) end();
      }
      end();
    }
  }
  return found;
}

}  // namespace structure
