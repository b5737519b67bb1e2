// Of several ranks that find another one lost, one tells the user.
#include "ranks/speaker.h"

namespace rooflm::ranks {

void give_up(Transport& transport, const RankLost& error) {
  auto* const speaker = dynamic_cast<Speaker*>(&transport);
  if (speaker == nullptr) {
    transport.abandon(error.what());
    throw RankLost(error);
  }
  speaker->give_up(error.what());
  // launch hears all of them, and tells of one itself.
  if (!transport.place().is_launched && speaker->is_told_by_another()) throw ToldByAnother(error.what());
  throw RankLost(error);
}

}  // namespace rooflm::ranks
