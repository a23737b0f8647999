# Evaluates setup and completion globally, and the tests above them; descriptor 3 holds the word that proves the end.
local({
  place <- "/proc/self/fd/3"
  word <- readLines(place, warn = FALSE)
  file.create(place)
  write <- base::writeLines
  tests <- parse("tests.R", keep.source = FALSE)
  # Functions of R that the tests name are those of R, whatever the completion has defined.
  own <- new.env(parent = globalenv())
  for (name in unique(all.names(tests))) {
    if (exists(name, envir = baseenv(), inherits = FALSE)) assign(name, get(name, envir = baseenv()), envir = own)
  }
  for (name in c("setup.R", "solution.R")) {
    for (each in as.list(parse(name, keep.source = FALSE))) eval(each, globalenv())
  }
  for (each in as.list(tests)) eval(each, own)
  write(word, place)
})
