"""All text of ours that a model sees."""

TESTS_SYSTEM = "You are an expert {language} programmer. You rewrite programs so that they pass more tests."
METRICS_SYSTEM = "You are an expert {language} programmer. You improve programs so that their metrics rise."
TEXT_SYSTEM = "You solve problems whose answers are texts. You improve answers so that they pass more tests."
TEXT = "Here a program is the answer itself: plain text, which is judged and not run."
ONE = "Write one improved, complete program in a single ```{language} block. {contract} Do not print tests or examples."
MANY = (
    "Write {m} complete programs that solve the task in {m} different ways, so that together they {goal}. Put each under a "
    "heading `### Solution 1` to `### Solution {m}` in its own ```{language} block. {contract}"
)

EDIT = """\
Change the current program with edits of this form:

<<<<<<< SEARCH
lines of the current program, repeated exactly
=======
the lines that take their place
>>>>>>> REPLACE

Each SEARCH must be found at one place in the current program. {contract}"""
EDIT_MANY = (
    "\n\nGive {m} different sets of edits, each of the current program, so that together they {goal}, "
    "under the headings `### Solution 1` to `### Solution {m}`."
)
KEEP_INTERFACE = "Keep what the evaluation calls: names, parameters and kinds of results."
KEEP_SIGNATURES = "Each program must define {names}: same name, same parameters, same kind of result."
KEEP = " Only the lines between the EVOLVE-BLOCK markers may change."

PASS_TESTS = "pass as many tests as possible"
RAISE_METRICS = "do as well as possible on every metric"

EXPENDABLE = (
    "Programs that pass some of these tests",
    "Other programs",
    "Best programs so far",
    "What its evaluation told",
    "Tests that it fails",
)
"""Titles of the sections that a prompt which is too long loses, the first one first."""

RETRY = "Your reply could not be used: {reason}. Answer again, and keep to the form that was asked for: {form}."
FORM = "{m} complete {language} program{s}, each in its own ```{language} block"
FORM_EDITS = "edits with <<<<<<< SEARCH, ======= and >>>>>>> REPLACE, each on a line of its own"
