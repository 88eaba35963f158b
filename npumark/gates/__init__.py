"""Gates: measures of answer quality, and pass or fail with a margin."""
