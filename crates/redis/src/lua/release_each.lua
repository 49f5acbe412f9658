-- Answers each release separately: an error of one does not stop the others. Comes after release.lua.
return answer_items(release_item)
