# Evaluates setup, completion and tests in the global environment; descriptor 3 holds the word that proves the end.
# Names of this block are found in R itself, never among the global functions of the completion.
local(envir = new.env(parent = baseenv()), {
  place <- "/proc/self/fd/3"
  word <- readLines(place, warn = FALSE)
  file.create(place)
  texts <- lapply(c("setup.R", "solution.R", "tests.R"), function(name) as.list(parse(name, keep.source = FALSE)))
  for (text in texts) for (each in text) eval(each, globalenv())
  writeLines(word, place)
})
